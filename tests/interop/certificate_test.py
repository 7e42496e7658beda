"""The certificate is valid under its schema, and hashlib gives every sum that it states."""

import hashlib
import json
import os
import unittest

import jsonschema
import numpy as np
from safetensors import safe_open

from reading_test import write_folder, write_gguf
from support import ROOT, packstone, packstone_json, work_folder


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def schema():
    with open(os.path.join(ROOT, "docs", "certificate.schema.json"), encoding="utf-8") as f:
        document = json.load(f)
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


class Certificate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = work_folder("certificate")
        cls.model = os.path.join(cls.folder, "model.gguf")
        write_gguf(cls.model, gguf_kind("Q4_1"))
        cls.target = os.path.join(cls.folder, "mlx")
        made = packstone_json("convert", cls.model, cls.target, "--to", "mlx-affine")
        cls.path = made["certificate"]
        with open(cls.path, encoding="utf-8") as f:
            cls.document = json.load(f)

    def test_schema_accepts_what_convert_writes(self):
        schema().validate(self.document)
        back = os.path.join(self.folder, "back.gguf")
        made = packstone_json("convert", self.target, back, "--to", "gguf:Q4_1")
        self.assertEqual(made["certificate"], back + ".certificate.json")
        with open(made["certificate"], encoding="utf-8") as f:
            schema().validate(json.load(f))

    def test_schema_and_verify_refuse_the_same(self):
        for change in (
            lambda d: d.pop("not_carried"),
            lambda d: d.update(more=1),
            lambda d: d["source"].update(sha256="0" * 63),
            lambda d: d["tensors"][0].update(verdict="changed"),
            lambda d: d["tensors"][0]["target"].update(bits="4"),
            lambda d: d["tensors"][0]["target"]["parameters"].update(metadata="float64"),
            lambda d: d["target"]["files"][0].update(bytes=-1),
        ):
            document = json.loads(json.dumps(self.document))
            change(document)
            self.assertFalse(schema().is_valid(document))
            path = os.path.join(self.folder, "changed.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(document, f)
            packstone("verify", self.target, "--certificate", path, code=4)

    def test_sums_by_hashlib(self):
        with open(self.model, "rb") as f:
            model = f.read()
        source = self.document["source"]
        self.assertEqual([f["sha256"] for f in source["files"]], [sha256(model)])
        self.assertEqual(source["sha256"], sha256(f"{sha256(model)}  1\n".encode()))
        for stored in source["stored"]:
            data = model[stored["offset"] : stored["offset"] + stored["bytes"]]
            self.assertEqual(stored["sha256"], sha256(data), stored["name"])
        target = self.document["target"]
        names = sorted(set(os.listdir(self.target)) - {os.path.basename(self.path)})
        self.assertEqual([f["name"] for f in target["files"]], names)
        lines = ""
        for file in target["files"]:
            with open(os.path.join(self.target, file["name"]), "rb") as f:
                data = f.read()
            self.assertEqual(file["sha256"], sha256(data), file["name"])
            self.assertEqual(file["bytes"], len(data))
            lines += f"{file['sha256']}  {file['name']}\n"
        self.assertEqual(target["sha256"], sha256(lines.encode()))
        with safe_open(os.path.join(self.target, "model.safetensors"), "np") as tensors:
            self.assertEqual({s["name"] for s in target["stored"]}, set(tensors.keys()))
            for stored in target["stored"]:
                array = tensors.get_tensor(stored["name"])
                self.assertEqual(list(array.shape), stored["shape"])
                self.assertEqual(stored["sha256"], sha256(np.ascontiguousarray(array).tobytes()))

    def test_verify_of_a_folder_of_another_program(self):
        source = os.path.join(self.folder, "floats")
        write_folder(source)
        target = os.path.join(self.folder, "floats.gguf")
        packstone("convert", source, target, "--to", "gguf:F32")
        self.assertTrue(packstone_json("verify", target, "--against", source)["holds"])


def gguf_kind(name):
    import gguf

    return gguf.GGMLQuantizationType[name]


if __name__ == "__main__":
    unittest.main()
