#!/usr/bin/env python3
"""Downloads the packages of sources.py and writes the corpus.

usage: corpus.py FOLDER [--permissive-heldout FILE] [--jobs N]

Writes into FOLDER:
  debs/            the packages, by `apt-get download` (what is there is not fetched again)
  train.txt        documents of UTF-8 text; each ends with a zero byte
  heldout.txt      the documents kept out of training, in the same way
  manifest.json    per package its version, the SHA-256 of the .deb, documents and bytes
--permissive-heldout writes a part of the held-out documents for the repository: only sources with
a licence in sources.py, half prose and half code, documents parted by an empty line.
"""

import argparse
import collections
import concurrent.futures
import glob
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import urllib.parse
import zipfile

from sources import SOURCES
from text_rules import keep, plain_text

PIECE_BYTES = 65536  # a long document is cut into pieces of about this many, at empty lines
LONG_BYTES = 262144  # a document is long from here on
HELDOUT_SHARE = 0.012  # of the documents that are not cut
HELDOUT_DOCUMENT_BYTES = (1500, 24576)  # of a document in the repository's held-out text
HELDOUT_KIND_BYTES = 200_000
LINE_BYTES_MIN = 32
LINE_REPEATS_MAX = 6  # a line of LINE_BYTES_MIN or more is kept this often in the whole corpus


def path_hash(text):
    return hashlib.sha256(text.encode()).digest()


def hash_share(text):
    return int.from_bytes(path_hash("heldout:" + text)[:8], "big") / 2**64


def tar_files(stream, pattern, prefix=""):
    """Names and bytes of the matching files of a tar stream; tar files in it are opened too."""
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if not member.isfile():
                continue
            if re.search(r"\.tar\.(xz|gz|bz2)$", name):
                inner = archive.extractfile(member)
                yield from tar_files(inner, pattern, name + "/")
            elif name.endswith("/src.zip"):
                yield from zip_files(archive.extractfile(member).read(), pattern)
            elif pattern.search(name) and member.size < 2**27:
                yield prefix + name, archive.extractfile(member).read()


def zip_files(data, pattern):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if pattern.search(name):
                yield name, archive.read(name)


def pieces(name, text):
    if len(text) <= LONG_BYTES:
        return [(name, text)]
    result, start = [], 0
    while start < len(text):
        end = text.find("\n\n", start + PIECE_BYTES, start + 2 * PIECE_BYTES)
        if end < 0:
            end = text.find("\n", start + PIECE_BYTES)
        end = len(text) if end < 0 else end + 1
        result.append((f"{name}#{len(result)}", text[start:end]))
        start = end
    return result


def read_package(source, deb):
    """The kept documents of a package as (path, text), in the order of the hash of their path."""
    pattern = re.compile(source.pattern)
    documents = []
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as process:
        for name, data in tar_files(process.stdout, pattern):
            if re.search(r"copyright|changelog|/LICEN[CS]E|/COPYING|genindex|py-modindex", name):
                continue
            text = plain_text(name, data)
            if text is not None:
                documents.extend(p for p in pieces(name, text) if keep(source.kind, p[1]))
    documents.sort(key=lambda document: path_hash(document[0]))
    return documents


class Repeats:
    """Drops documents that were seen and lines that were seen too often."""

    def __init__(self):
        self.documents = set()
        self.lines = collections.Counter()

    def filter(self, text):
        """The text without its repeated lines, or None for a repeated document."""
        digest = hashlib.sha256(re.sub(r"\W+", "", text).encode()).digest()[:12]
        if digest in self.documents:
            return None
        self.documents.add(digest)
        kept, dropped = [], 0
        for line in text.split("\n"):
            stripped = line.strip()
            if len(stripped) >= LINE_BYTES_MIN:
                # 63 bits of a hash that no seed changes: the same corpus in every run.
                key = hashlib.blake2b(stripped.encode(), digest_size=8).digest()
                self.lines[key] += 1
                if self.lines[key] > LINE_REPEATS_MAX:
                    dropped += len(line)
                    continue
            kept.append(line)
        if dropped > len(text) // 2:
            return None
        return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n") + "\n"


def download(folder):
    """The .deb of each source, fetched when it is not there."""
    os.makedirs(folder, exist_ok=True)
    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.deb"))):
        found[os.path.basename(path).split("_")[0]] = path
    missing = [s.package for s in SOURCES if urllib.parse.quote(s.package, safe="+") not in found]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=folder, check=True)
        return download(folder)
    return {s.package: found[s.package] for s in SOURCES}


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_permissive(path, documents):
    """About HELDOUT_KIND_BYTES of each kind, whole documents, in the order of their hash."""
    low, high = HELDOUT_DOCUMENT_BYTES
    names = []
    with open(path, "w", encoding="utf-8") as file:
        for kind in ("prose", "code"):
            size = 0
            for source, name, text in sorted(documents, key=lambda d: path_hash(d[1])):
                if source.kind != kind or not source.licence or not low <= len(text) <= high:
                    continue
                if size + len(text) > HELDOUT_KIND_BYTES:
                    continue
                file.write(text + "\n")
                names.append(f"{source.package}: {name}")
                size += len(text) + 1
            print(f"{path}: {size} bytes of {kind}")
    return names


def main():
    layout = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("folder")
    parser.add_argument("--permissive-heldout")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()

    debs = download(os.path.join(options.folder, "debs"))
    repeats = Repeats()
    totals = collections.Counter()
    heldout, manifest = [], []
    train_path = os.path.join(options.folder, "train.txt")
    with (
        open(train_path, "wb") as train,
        open(os.path.join(options.folder, "heldout.txt"), "wb") as held,
        concurrent.futures.ProcessPoolExecutor(options.jobs) as pool,
    ):
        results = pool.map(read_package, SOURCES, [debs[s.package] for s in SOURCES])
        for source, documents in zip(SOURCES, results):
            count = size = 0
            for name, text in documents:
                if size > source.cap_mb * 1e6:
                    break
                text = repeats.filter(text)
                if text is None or not keep(source.kind, text):
                    continue
                data = text.encode() + b"\0"
                count, size = count + 1, size + len(data)
                if "#" not in name and hash_share(f"{source.package}/{name}") < HELDOUT_SHARE:
                    held.write(data)
                    heldout.append((source, name, text))
                    totals["heldout " + source.kind] += len(data)
                else:
                    train.write(data)
                    totals["train " + source.kind] += len(data)
            deb = os.path.basename(debs[source.package])
            version = urllib.parse.unquote(deb.split("_")[1])
            manifest.append({
                "package": source.package, "version": version, "kind": source.kind,
                "documents": count, "bytes": size, "sha256": sha256_of(debs[source.package]),
            })  # fmt: skip
            print(f"{source.package} {version}: {count} documents, {size} bytes", flush=True)
    summary = {"bytes": dict(totals), "packages": manifest}
    if options.permissive_heldout:
        summary["heldout_documents"] = write_permissive(options.permissive_heldout, heldout)
    with open(os.path.join(options.folder, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(summary, file, indent=1)
        file.write("\n")
    print(json.dumps(dict(totals)))


if __name__ == "__main__":
    main()
