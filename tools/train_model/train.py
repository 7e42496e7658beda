#!/usr/bin/env python3
"""Trains the model on one GPU.

usage: train.py --train IDS... --heldout IDS --steps N --out FOLDER

IDs are uint16 files of tokenizer.py. Weights and the optimizer are float32, matrix products
bfloat16 (autocast). AdamW; the learning rate rises over WARMUP steps, stays, and falls to zero over
the last DECAY_SHARE of the steps. Writes model.safetensors (bfloat16) and train.json (losses,
speed).
"""

import argparse
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from shape import SHAPE

CONTEXT = SHAPE["max_position_embeddings"]
BATCH = 128  # sequences a step
LEARNING_RATE = 3e-3
WARMUP = 200
DECAY_SHARE = 0.3
WEIGHT_DECAY = 0.1
GRADIENT_NORM_MAX = 1.0
SEED = 1234


def rope_tables(device):
    dim = SHAPE["head_dim"]
    inverse = SHAPE["rope_theta"] ** (-torch.arange(0, dim, 2, device=device).float() / dim)
    angles = torch.outer(torch.arange(CONTEXT, device=device).float(), inverse)
    return torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()


def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return (x * cos + torch.cat((-high, low), -1) * sin).to(x.dtype)


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        x = x.float()
        return (
            x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE["rms_norm_eps"]) * self.weight
        )


def linear(rows_in, rows_out):
    return nn.Linear(rows_in, rows_out, bias=False)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, dim = SHAPE["hidden_size"], SHAPE["head_dim"]
        self.heads, self.kv_heads = SHAPE["num_attention_heads"], SHAPE["num_key_value_heads"]
        self.q_proj = linear(hidden, self.heads * dim)
        self.k_proj = linear(hidden, self.kv_heads * dim)
        self.v_proj = linear(hidden, self.kv_heads * dim)
        self.o_proj = linear(self.heads * dim, hidden)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q, k, v = (
            p(x).view(batch, length, -1, SHAPE["head_dim"]).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        group = self.heads // self.kv_heads
        k = rotate(k, cos, sin).repeat_interleave(group, 1)
        v = v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = Norm(SHAPE["hidden_size"])
        self.self_attn = Attention()
        self.post_attention_layernorm = Norm(SHAPE["hidden_size"])
        self.mlp = FeedForward()

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """The names of its parameters are those of LlamaForCausalLM under `model.`."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(SHAPE["vocab_size"], SHAPE["hidden_size"])
        self.layers = nn.ModuleList(Layer() for _ in range(SHAPE["num_hidden_layers"]))
        self.norm = Norm(SHAPE["hidden_size"])
        deep = 0.02 / (2 * SHAPE["num_hidden_layers"]) ** 0.5
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=deep if residual else 0.02)

    def forward(self, ids, targets, cos, sin):
        """Mean cross-entropy in nats."""
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = F.linear(self.norm(x), self.embed_tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def learning_rate(step, steps):
    decay = int(steps * DECAY_SHARE)
    return LEARNING_RATE * min(1, (step + 1) / WARMUP, (steps - step) / decay)


class Windows:
    """Batches of windows of CONTEXT + 1 ids; every pass has its own order and offset."""

    def __init__(self, ids, generator):
        self.ids, self.generator, self.starts = ids, generator, torch.empty(0, dtype=torch.long)

    def next(self):
        if len(self.starts) < BATCH:
            offset = int(torch.randint(CONTEXT, (1,), generator=self.generator))
            count = (len(self.ids) - offset - 1) // CONTEXT
            order = torch.randperm(count, generator=self.generator)
            self.starts = order * CONTEXT + offset
        starts, self.starts = self.starts[:BATCH], self.starts[BATCH:]
        index = starts.to(self.ids.device)[:, None] + torch.arange(
            CONTEXT + 1, device=self.ids.device
        )
        window = self.ids[index].long()
        return window[:, :-1], window[:, 1:]


@torch.no_grad()
def heldout_loss(model, ids, tables):
    total = count = 0
    for start in range(0, len(ids) - CONTEXT - 1, CONTEXT):
        window = ids[start : start + CONTEXT + 1].long()[None]
        with torch.autocast(ids.device.type, torch.bfloat16):
            total += model(window[:, :-1], window[:, 1:], *tables).item()
        count += 1
    return total / count


def load_ids(paths, device):
    ids = np.concatenate([np.fromfile(path, dtype="<u2") for path in paths]).astype(np.int32)
    return torch.from_numpy(ids).to(device)


def make_optimizer(model, fused):
    groups = [
        {"params": [w for w in model.parameters() if w.dim() == 2], "weight_decay": WEIGHT_DECAY},
        {"params": [w for w in model.parameters() if w.dim() == 1], "weight_decay": 0},
    ]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def run_steps(model, windows, steps, heldout, tables):
    """Trains, prints an entry every 100 steps, and gives these entries."""
    device = windows.ids.device.type
    optimizer = make_optimizer(model, fused=device == "cuda")
    compiled = torch.compile(model)
    log, since = [], time.time()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        with torch.autocast(device, torch.bfloat16):
            loss = compiled(*windows.next(), *tables)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM_MAX)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 0:
            loss.item()
            print(f"first step: {time.time() - since:.1f} s", flush=True)
            since = time.time()
        elif step % 100 == 0 or step + 1 == steps:
            entry = {"step": step, "loss": round(loss.item(), 4)}
            seconds = time.time() - since
            entry["seconds"] = round(seconds, 1)
            entry["tokens_per_second"] = round(step * BATCH * CONTEXT / seconds)
            if step % 1000 == 0:
                entry["heldout_loss"] = round(heldout_loss(model, heldout, tables), 4)
            log.append(entry)
            print(json.dumps(entry), flush=True)
    return log


@torch.no_grad()
def save_rounded(model, path):
    """Rounds the weights to bfloat16 and saves them."""
    tensors = {}
    for name, weight in model.named_parameters():
        weight.copy_(weight.bfloat16())
        tensors[f"model.{name}"] = weight.detach().bfloat16().cpu().contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


def main():
    layout = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--heldout", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    model = Llama().to(device)
    parameters = sum(weight.numel() for weight in model.parameters())
    tables = rope_tables(device)
    ids, heldout = load_ids(options.train, device), load_ids([options.heldout], device)
    print(f"{parameters} parameters, {len(ids)} training ids, {len(heldout)} held-out", flush=True)
    windows = Windows(ids, torch.Generator().manual_seed(SEED))
    log = run_steps(model, windows, options.steps, heldout, tables)

    os.makedirs(options.out, exist_ok=True)
    save_rounded(model, os.path.join(options.out, "model.safetensors"))
    last = [entry["loss"] for entry in log[-5:]]
    summary = {
        "parameters": parameters, "training_ids": len(ids), "heldout_ids": len(heldout),
        "steps": options.steps, "sequences_per_step": BATCH,
        "tokens_seen": options.steps * BATCH * CONTEXT, "seconds": log[-1]["seconds"],
        "train_loss": sum(last) / len(last),
        "heldout_loss": heldout_loss(model, heldout, tables), "log": log,
    }  # fmt: skip
    with open(os.path.join(options.out, "train.json"), "w", encoding="utf-8") as file:
        json.dump(summary, file, indent=1)
    print(f"held-out loss of the bfloat16 weights: {summary['heldout_loss']:.4f}")


if __name__ == "__main__":
    main()
