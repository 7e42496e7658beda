"""Makes tests/golden: tiny random models of every architecture with the logits and greedy tokens
that mlx_lm computes for them in float32 on the CPU.

Needs the PyPI packages numpy, mlx[cpu] 0.32 and mlx-lm 0.32. Run: python make_golden.py
Weights are bfloat16 (their float32 values are exact), so that the files stay small. The variants of
one architecture share its weights and differ in config.json only.
"""

import importlib
import json
import pathlib

import mlx.core as mx
import numpy as np

HERE = pathlib.Path(__file__).parent
PROMPT = 24
GREEDY = 64

COMMON = dict(
    hidden_size=64,
    num_hidden_layers=2,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=256,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    hidden_act="silu",
    torch_dtype="bfloat16",
    bos_token_id=1,
    eos_token_id=2,
)
GEMMA = dict(hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, query_pre_attn_scalar=24)

# folder: (weights folder, mlx_lm module, config additions)
MODELS = {
    "llama": ("llama", "llama", dict(model_type="llama", tie_word_embeddings=False)),
    "llama_linear": ("llama", "llama", dict(
        model_type="llama", tie_word_embeddings=False,
        rope_scaling=dict(rope_type="linear", factor=4.0))),
    "llama_llama3": ("llama", "llama", dict(
        model_type="llama", tie_word_embeddings=False,
        rope_scaling=dict(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64))),
    "llama_yarn": ("llama", "llama", dict(
        model_type="llama", tie_word_embeddings=False,
        rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64))),
    "mistral": ("llama", "llama", dict(model_type="mistral", tie_word_embeddings=False)),
    "qwen2": ("qwen2", "qwen2", dict(model_type="qwen2", tie_word_embeddings=True,
                                     rope_theta=1000000.0, rms_norm_eps=1e-6)),
    "qwen3": ("qwen3", "qwen3", dict(model_type="qwen3", tie_word_embeddings=True, head_dim=32,
                                     rope_theta=1000000.0, rms_norm_eps=1e-6)),
    # mlx_lm has no sliding window in Gemma 2: the window here is wider than the test.
    "gemma2": ("gemma2", "gemma2", dict(
        model_type="gemma2", tie_word_embeddings=True, sliding_window=4096,
        attn_logit_softcapping=3.0, final_logit_softcapping=4.0, **GEMMA)),
    "gemma3": ("gemma3", "gemma3_text", dict(
        model_type="gemma3_text", tie_word_embeddings=True, num_hidden_layers=4,
        intermediate_size=64, num_key_value_heads=1, sliding_window=6, sliding_window_pattern=2,
        rope_theta=1000000.0, rope_local_base_freq=10000.0, **GEMMA)),
}
ARCHITECTURES = dict(
    llama="LlamaForCausalLM", mistral="MistralForCausalLM", qwen2="Qwen2ForCausalLM",
    qwen3="Qwen3ForCausalLM", gemma2="Gemma2ForCausalLM", gemma3_text="Gemma3ForCausalLM")


def full_config(addition):
    config = {"architectures": [ARCHITECTURES[addition["model_type"]]], **COMMON, **addition}
    if config["model_type"].startswith("gemma"):
        del config["hidden_act"]
    return config


def make_weights(config, seed):
    rng = np.random.default_rng(seed)
    c = config
    gemma = c["model_type"].startswith("gemma")
    hidden, inner, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    out = {}

    def matrix(name, rows, cols, gain=1.0):
        out[name] = rng.standard_normal((rows, cols)) * gain / np.sqrt(cols)

    def norm(name, n, gain=1.0):
        out[name] = rng.uniform(0.6, 1.4, n) * gain - (1.0 if gemma else 0.0)

    # Small embeddings keep a tied head from only repeating its input.
    matrix("model.embed_tokens.weight", c["vocab_size"], hidden,
           4.0 if not c["tie_word_embeddings"] else 0.05 if gemma else 0.4)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        norm(p + "input_layernorm.weight", hidden)
        norm(p + "post_attention_layernorm.weight", hidden)
        if gemma:
            norm(p + "pre_feedforward_layernorm.weight", hidden)
            norm(p + "post_feedforward_layernorm.weight", hidden)
        matrix(p + "self_attn.q_proj.weight", q, hidden, 1.5)
        matrix(p + "self_attn.k_proj.weight", kv, hidden, 1.5)
        matrix(p + "self_attn.v_proj.weight", kv, hidden)
        matrix(p + "self_attn.o_proj.weight", hidden, q)
        if c["model_type"] == "qwen2":
            for part, n in (("q", q), ("k", kv), ("v", kv)):
                out[p + f"self_attn.{part}_proj.bias"] = rng.standard_normal(n) * 0.5
        if c["model_type"] in ("qwen3", "gemma3_text"):
            norm(p + "self_attn.q_norm.weight", d)
            norm(p + "self_attn.k_norm.weight", d)
        matrix(p + "mlp.gate_proj.weight", inner, hidden, 1.5)
        matrix(p + "mlp.up_proj.weight", inner, hidden)
        matrix(p + "mlp.down_proj.weight", hidden, inner)
    tied = c["tie_word_embeddings"]
    norm("model.norm.weight", hidden, 1.0 if not tied else 40.0 if gemma else 5.0)
    if not c["tie_word_embeddings"]:
        matrix("lm_head.weight", c["vocab_size"], hidden, 2.0)
    return {name: mx.array(x.astype(np.float32)).astype(mx.bfloat16) for name, x in out.items()}


def run(module, config, weights):
    code = importlib.import_module("mlx_lm.models." + module)
    model = code.Model(code.ModelArgs.from_dict(config))
    values = {name: x.astype(mx.float32) for name, x in weights.items()}
    if hasattr(model, "sanitize"):
        values = model.sanitize(values)
    model.load_weights(list(values.items()), strict=True)
    rng = np.random.default_rng(7)
    tokens = [1] + [int(t) for t in rng.integers(3, config["vocab_size"], PROMPT - 1)]
    logits = np.array(model(mx.array([tokens]))[0])
    greedy, margins, sequence = [], [], list(tokens)
    for _ in range(GREEDY):
        last = np.array(model(mx.array([sequence]))[0, -1])
        order = np.argsort(-last, kind="stable")
        margins.append(float(last[order[0]] - last[order[1]]))
        greedy.append(int(order[0]))
        sequence.append(greedy[-1])
    return tokens, logits.astype(np.float32), greedy, margins


def main():
    mx.set_default_device(mx.cpu)
    for folder, (source, module, addition) in MODELS.items():
        config = full_config(addition)
        target = HERE / folder
        target.mkdir(exist_ok=True)
        (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        path = HERE / source / "model.safetensors"
        if source == folder:
            mx.save_safetensors(str(path), make_weights(config, list(MODELS).index(folder)),
                                metadata={"format": "pt"})
        tokens, logits, greedy, margins = run(module, config, mx.load(str(path)))
        np.save(target / "logits.npy", logits)
        expected = dict(weights=source, tokens=tokens, greedy=greedy, margin_min=min(margins),
                        logits_std=float(logits.std()),
                        made_with="mlx_lm 0.32.2, mlx 0.32.4, float32, CPU")
        (target / "expected.json").write_text(json.dumps(expected) + "\n")
        print(folder, "std %.3f margin %.4g distinct %d" %
              (logits.std(), min(margins), len(set(greedy))))


if __name__ == "__main__":
    main()
