"""We read what the gguf and safetensors packages write, and say of damage what it is."""

import json
import os
import unittest

import gguf
import numpy as np
from safetensors.numpy import save_file

from support import packstone, packstone_json, work_folder

WIDTH, HIDDEN, VOCABULARY = 64, 96, 32


def matrices(seed):
    random = np.random.default_rng(seed)
    return lambda *shape: random.standard_normal(shape).astype(np.float32)


def write_gguf(path, kind):
    """A llama of one layer with matrices of a GGML type, by the gguf package."""
    draw = matrices(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([chr(ord("a") + i % 26) * (1 + i // 26) for i in range(VOCABULARY)])
    writer.add_token_merges(["a a"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    shapes = {
        "token_embd.weight": (VOCABULARY, WIDTH),
        "blk.0.attn_q.weight": (WIDTH, WIDTH),
        "blk.0.attn_k.weight": (WIDTH // 2, WIDTH),
        "blk.0.attn_v.weight": (WIDTH // 2, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_gate.weight": (HIDDEN, WIDTH),
        "blk.0.ffn_up.weight": (HIDDEN, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, HIDDEN),
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, gguf.quants.quantize(draw(*shape), kind), raw_dtype=kind)
    for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"):
        writer.add_tensor(name, draw(WIDTH))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(path):
    """The same llama as a Hugging Face folder, by the safetensors package."""
    os.makedirs(path)
    draw = matrices(2)
    prefix = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": draw(VOCABULARY, WIDTH),
        "model.norm.weight": draw(WIDTH),
        prefix + "input_layernorm.weight": draw(WIDTH),
        prefix + "post_attention_layernorm.weight": draw(WIDTH),
        prefix + "self_attn.q_proj.weight": draw(WIDTH, WIDTH),
        prefix + "self_attn.k_proj.weight": draw(WIDTH // 2, WIDTH),
        prefix + "self_attn.v_proj.weight": draw(WIDTH // 2, WIDTH),
        prefix + "self_attn.o_proj.weight": draw(WIDTH, WIDTH),
        prefix + "mlp.gate_proj.weight": draw(HIDDEN, WIDTH),
        prefix + "mlp.up_proj.weight": draw(HIDDEN, WIDTH),
        prefix + "mlp.down_proj.weight": draw(WIDTH, HIDDEN),
    }
    save_file(tensors, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH,
        "intermediate_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128, "rope_theta": 10000.0, "tie_word_embeddings": True,
    }  # fmt: skip
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    return tensors


class Reading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = work_folder("reading")

    def test_gguf_of_every_type_the_package_writes(self):
        for kind in (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1,
                     gguf.GGMLQuantizationType.Q5_0, gguf.GGMLQuantizationType.Q5_1,
                     gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16,
                     gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.F32):  # fmt: skip
            with self.subTest(kind=kind.name):
                path = os.path.join(self.folder, f"{kind.name}.gguf")
                write_gguf(path, kind)
                report = packstone_json("inspect", path)
                self.assertEqual(report["architecture"], "llama")
                self.assertEqual(report["problems"], [])
                self.assertEqual(len(report["tensors"]), 11)

    def test_gguf_values(self):
        path, plain = os.path.join(self.folder, "v.gguf"), os.path.join(self.folder, "v-f32.gguf")
        write_gguf(path, gguf.GGMLQuantizationType.Q5_1)
        packstone("convert", path, plain, "--to", "gguf:F32")
        ours = {t.name: t for t in gguf.GGUFReader(plain).tensors}
        for tensor in gguf.GGUFReader(path).tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            self.assertTrue(np.array_equal(values, ours[tensor.name].data), tensor.name)

    def test_safetensors_folder(self):
        path = os.path.join(self.folder, "hf")
        tensors = write_folder(path)
        report = packstone_json("inspect", path)
        self.assertEqual(report["problems"], [])
        self.assertEqual(report["parameters"], sum(t.size for t in tensors.values()))
        shapes = {t["name"]: t["shape"] for t in report["tensors"]}
        for name, values in tensors.items():
            self.assertEqual(shapes[name], list(values.shape), name)

    def test_a_truncated_file_is_damage(self):
        path, cut = os.path.join(self.folder, "c.gguf"), os.path.join(self.folder, "cut.gguf")
        write_gguf(path, gguf.GGMLQuantizationType.Q8_0)
        with open(path, "rb") as f, open(cut, "wb") as g:
            g.write(f.read()[:-4096])
        packstone("inspect", cut, code=4)


if __name__ == "__main__":
    unittest.main()
