"""What the interop tests share: running packstone, the models, and a folder for outputs."""

import hashlib
import json
import os
import shutil
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PACKSTONE = os.environ.get("PACKSTONE", os.path.join(ROOT, "build", "dev", "packstone"))
MODELS = os.environ.get("PACKSTONE_MODELS", os.path.join(ROOT, ".cache", "models"))
SMOLLM2 = os.path.join(MODELS, "SmolLM2-135M-Instruct.Q4_1.gguf")
GEMMA3 = os.path.join(MODELS, "gemma-3-270m-q4_k_m.gguf")

# Prompt and greedy continuation of SmolLM2 Q4_1 on which four builds of llama.cpp agree.
LICENSE_PROMPT = "The GNU General Public License is"
LICENSE_PROMPT_IDS = [504, 28807, 4660, 4837, 6966, 314]
LICENSE_IDS = [
    253, 1603, 29, 10291, 3904, 338, 9605, 260, 1904, 284, 1440, 2257, 3197, 28807, 5265, 30,
    657, 314, 260, 3995, 1440, 29, 7032, 3197, 1391, 281, 260, 905, 30, 198, 198, 504,
]  # fmt: skip

CHAT_PROMPT = (
    "<|im_start|>user\nName three colors of the rainbow.<|im_end|>\n<|im_start|>assistant\n"
)


def work_folder(name):
    """An empty folder for the outputs of one test file."""
    path = os.path.join(ROOT, "build", "dev", "interop", name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def packstone(*arguments, code=0):
    """Runs packstone and gives its stdout; another exit code than `code` is an AssertionError."""
    command = [PACKSTONE, *[str(a) for a in arguments]]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=900)
    if done.returncode != code:
        raise AssertionError(
            f"{' '.join(command)}\nexit code {done.returncode}, expected {code}\n"
            f"{done.stdout[-2000:].decode(errors='replace')}\n"
            f"{done.stderr[-4000:].decode(errors='replace')}"
        )
    return done.stdout


def packstone_json(*arguments, code=0):
    return json.loads(packstone(*arguments, "--json", code=code))


def license_text(folder):
    """The first 20,480 bytes of the GPL-3 as Debian ships it, as a file; the perplexity text."""
    with open("/usr/share/common-licenses/GPL-3", "rb") as f:
        text = f.read(20480)
    digest = hashlib.sha256(text).hexdigest()
    if not (digest.startswith("7bd5042d") and digest.endswith("0e281")):
        raise AssertionError(f"another text than the reference figures were measured on: {digest}")
    path = os.path.join(folder, "gpl3-20k.txt")
    with open(path, "wb") as f:
        f.write(text)
    return path
