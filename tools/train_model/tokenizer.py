#!/usr/bin/env python3
"""Trains the byte-level BPE tokenizer and encodes the corpus.

usage: tokenizer.py train TOKENIZER.json TEXT...      documents end with a zero byte
       tokenizer.py encode TOKENIZER.json OUT TEXT...  uint16 ids; id 0 before each document

Pre-tokenizer: single digits, then GPT-2's pattern over bytes (the rules of SmolLM).
"""

import sys

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 8192
END_OF_TEXT = "<|endoftext|>"  # id 0
BATCH = 1024


def documents(paths):
    for path in paths:
        with open(path, "rb") as file:
            for document in file.read().split(b"\0"):
                if document:
                    yield document.decode()


def batches(paths):
    batch = []
    for document in documents(paths):
        batch.append(document)
        if len(batch) == BATCH:
            yield batch
            batch = []
    yield batch


def train(path, texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END_OF_TEXT], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), max_token_length=16,
    )  # fmt: skip
    tokenizer.train_from_iterator(documents(texts), trainer)
    tokenizer.save(path)


def encode(path, out, texts):
    tokenizer = Tokenizer.from_file(path)
    count = bytes_count = 0
    with open(out, "wb") as file:
        for batch in batches(texts):
            for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                np.array([0, *encoding.ids], dtype="<u2").tofile(file)
                count += len(encoding.ids) + 1
            bytes_count += sum(len(document.encode()) for document in batch)
    print(f"{out}: {count} tokens, {bytes_count / count:.3f} bytes a token")


def main():
    command, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if command == "train" and len(arguments) >= 2:
        train(arguments[0], arguments[1:])
    elif command == "encode" and len(arguments) >= 3:
        encode(arguments[0], arguments[1], arguments[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
