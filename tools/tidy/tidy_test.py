"""Each rule of tidy finds what it is for, on a small tree, and leaves good code alone."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import rules  # noqa: E402
from source import functions, clean_cpp, tree_of  # noqa: E402

HEADER = "// A header.\n#pragma once\n"


def include(header):
    return f'#include "packstone/{header}"\n'


def found(rule, texts):
    return [(v.path, v.line) for v in rule(tree_of(texts))]


class Arrows(unittest.TestCase):
    def test_a_downward_include_passes(self):
        files = {
            "src/packstone/format/a.h": '#include "packstone/base/bits.h"\n',
            "src/packstone/checkpoint/a.cc": '#include "packstone/text/vocabulary.h"\n',
        }
        self.assertEqual(found(rules.include_arrows, files), [])

    def test_an_upward_or_sideways_include_is_found_with_the_sentence(self):
        files = {
            "src/packstone/base/a.h": '\n#include "packstone/format/format.h"\n',
            "src/packstone/quantize/a.cc": '#include "packstone/kernel/ops.h"\n',
        }
        tree = tree_of(files)
        messages = [str(v) for v in rules.include_arrows(tree)]
        self.assertEqual(len(messages), 2)
        self.assertIn("src/packstone/base/a.h:2: arrow base -> format", messages[0])
        self.assertIn("move the code or ask for a new arrow in ARCHITECTURE.md", messages[1])

    def test_an_unknown_room_is_found(self):
        files = {"src/packstone/attic/a.h": '#include "packstone/base/bits.h"\n'}
        self.assertEqual(found(rules.include_arrows, files), [("src/packstone/attic/a.h", 1)])

    def test_a_missing_header_is_found(self):
        files = {
            "src/packstone/base/a.h": "",
            "src/packstone/base/a.cc": include("base/a.h") + include("base/b.h"),
        }
        self.assertEqual(
            found(rules.include_targets_exist, files), [("src/packstone/base/a.cc", 2)]
        )

    def test_a_device_safe_header_may_not_allocate(self):
        files = {
            "src/packstone/base/bits.h": "#include <string>\n",
            "src/packstone/format/layout.h": include("base/bits.h") + include("base/result.h"),
        }
        self.assertEqual(
            found(rules.device_safe_headers, files),
            [("src/packstone/base/bits.h", 1), ("src/packstone/format/layout.h", 2)],
        )


class Registries(unittest.TestCase):
    FORMAT = "struct A { static constexpr std::string_view kName = 1; };\n"

    def test_a_format_needs_a_registry_line_and_a_vector_file(self):
        files = {
            "src/packstone/format/registry.h": '#include "packstone/format/good.h"\n',
            "src/packstone/format/good.h": self.FORMAT,
            "src/packstone/format/lost.h": self.FORMAT,
            "src/packstone/format/helper.h": "struct B {};\n",
            "tests/vectors/format/good.json": "{}",
        }
        self.assertEqual(
            found(rules.format_registry, files), [("src/packstone/format/lost.h", 1)] * 2
        )

    def test_an_architecture_needs_a_registry_line(self):
        files = {
            "src/packstone/model/registry.h": "ARCH(llama)\n",
            "src/packstone/model/arch/llama.cc": "",
            "src/packstone/model/arch/qwen3.cc": "",
            "src/packstone/model/arch/llama_test.cc": "",
        }
        self.assertEqual(
            found(rules.model_registry, files), [("src/packstone/model/arch/qwen3.cc", 1)]
        )


class Sizes(unittest.TestCase):
    def test_columns(self):
        files = {"src/packstone/base/a.h": "x" * 100 + "\n" + "x" * 101 + "\n"}
        self.assertEqual(found(rules.columns, files), [("src/packstone/base/a.h", 2)])

    def test_function_length(self):
        body = "  int x;\n" * 69
        long = f"int f(int a) {{\n{body}}}\n"
        short = "\n".join(["int g() {", "  return 1;", "}", ""])
        self.assertEqual(
            found(rules.function_length, {"src/packstone/base/a.cc": short + long}),
            [("src/packstone/base/a.cc", 4)],
        )
        marked = "// tidy: long function: one loop nest\n" + long
        self.assertEqual(found(rules.function_length, {"src/packstone/base/a.cc": marked}), [])

    def test_functions_are_told_from_types_and_initializers(self):
        text = clean_cpp(
            "namespace a {\n"
            "struct B : C {\n"
            "  B(int x = {}, std::vector<int> y = {})\n"
            "      : x_(x) {\n"
            '    call("}");  // }\n'
            "  }\n"
            "  bool operator==(const B&) const { return true; }\n"
            "};\n"
            "const int kTable[] = {1, 2};\n"
            "template <class T = int>\n"
            "int f() {\n"
            "  if (x) { auto g = [] { return 1; }; }\n"
            "}\n"
            "}  // namespace a\n"
        )
        names = [(f.name, f.start, f.end) for f in functions(text)]
        self.assertEqual(names, [("B", 3, 6), ("operator==", 7, 7), ("f", 10, 13)])

    def test_file_length(self):
        text = "int a;\n" * 801
        path = "src/packstone/base/a.cc"
        self.assertEqual(found(rules.file_length, {path: text}), [(path, 1)])
        self.assertEqual(found(rules.file_length, {path: "// tidy: long file: table\n" + text}), [])

    def test_file_size(self):
        files = {"tests/a.bin": "x" * (1 << 20), "tests/b.bin": "x" * ((1 << 20) + 1)}
        self.assertEqual(found(rules.file_size, files), [("tests/b.bin", 1)])
        large = "models/packstone-17m/model.safetensors"
        self.assertEqual(found(rules.file_size, {large: "x" * ((1 << 20) + 1)}), [])
        self.assertEqual(found(rules.file_size, {large: "x" * 40_000_001}), [(large, 1)])


class Banned(unittest.TestCase):
    def check(self, line, path="src/packstone/container/a.cc"):
        return len(found(rules.banned_calls, {path: line + "\n"}))

    def test_each_banned_call_is_found(self):
        for line in [
            "std::abort();", "exit(1);", "std::terminate();", "std::printf(s);", "std::cout << 1;",
            "fmt::print(s);", "std::stoi(s);", "atoi(s);", "sprintf(b, s);", "strtok(s, t);",
            "int x = rand();", "std::random_device r;", "std::thread t;", "throw 1;",
            "auto p = new int[3];", "delete p;", "delete[] p;", "void* p = malloc(3);",
            "goto end;",
        ]:  # fmt: skip
            self.assertEqual(self.check(line), 1, line)

    def test_good_code_passes(self):
        for line in [
            "A(const A&) = delete;", "// throw exit(1)", 'fail("exit(1) throw");',
            "reinterpret_cast<char*>(p);", "on_exit();", "entry.new_cache(1);",
            "snprintf(b, 3, s);", "std::unique_ptr<A> a(new A);",
            "int renew = 1;", "brand();", "options.exit(1);",
        ]:  # fmt: skip
            self.assertEqual(self.check(line), 0, line)

    def test_the_places_that_may(self):
        self.assertEqual(self.check("std::abort();", "src/packstone/base/check.cc"), 0)
        self.assertEqual(self.check("std::thread t;", "src/packstone/base/thread_pool.cc"), 0)
        self.assertEqual(self.check("std::printf(s);", "src/packstone/cli/main.cc"), 0)
        self.assertEqual(self.check("std::printf(s);", "src/packstone/base/a_test.cc"), 0)
        self.assertEqual(self.check("A* a = new A;  // tidy: allow new: private constructor"), 0)

    def test_the_message_names_the_replacement(self):
        tree = tree_of({"src/packstone/text/a.cc": "int x = std::stoi(s);\n"})
        self.assertIn("std::from_chars", str(rules.banned_calls(tree)[0]))


class Text(unittest.TestCase):
    def test_reminders(self):
        files = {"src/packstone/base/a.h": "// TO" + "DO: more\n", "README.md": "FIX" + "ME\n"}
        self.assertEqual(len(found(rules.reminders, files)), 2)
        self.assertEqual(
            found(rules.reminders, {"src/packstone/base/a.h": "// XXXX todo_list\n"}), []
        )

    def test_ascii(self):
        files = {"src/packstone/base/a.h": "// ok\n// \u2192\n", "docs/A.md": "\u2192\n"}
        self.assertEqual(found(rules.ascii_only, files), [("src/packstone/base/a.h", 2)])

    def test_machine_paths_and_hosts(self):
        files = {
            "tools/a.py": "open('/wo" + "rk/x')\n",
            "docs/a.md": "see /ro" + "ot/x\nand py" + "pi.org\n",
            "tools/b.py": "open('tests/work/x', '$HOME/root/y')\n",
            "models/packstone-17m/heldout.txt": "see /ro" + "ot/x\n",
        }
        self.assertEqual(
            found(rules.machine_paths, files),
            [("docs/a.md", 1), ("docs/a.md", 2), ("tools/a.py", 1)],
        )

    def test_pragma_once(self):
        files = {"src/packstone/base/a.h": HEADER, "src/packstone/base/b.h": "int x;\n"}
        self.assertEqual(found(rules.pragma_once, files), [("src/packstone/base/b.h", 1)] * 2)

    def test_tests_say_what_they_prove(self):
        files = {
            "src/packstone/base/a_test.cc": "// What.\n",
            "src/packstone/base/b_test.cc": "#include\n",
            "tests/interop/a_test.py": '"""What."""\n', "tests/interop/b_test.py": "import os\n",
        }  # fmt: skip
        self.assertEqual(
            found(rules.test_says_what, files),
            [("src/packstone/base/b_test.cc", 1), ("tests/interop/b_test.py", 1)],
        )


class Docstrings(unittest.TestCase):
    def check(self, body):
        return [
            line for _, line in found(rules.docstrings, {"src/packstone/base/a.h": HEADER + body})
        ]

    def test_a_bare_declaration_is_found(self):
        self.assertEqual(self.check("\nResult<int> f(int a,\n              int b);\n"), [4])
        self.assertEqual(self.check("\ntemplate <class T>\nT f(T a);\n"), [5])

    def test_a_comment_above_or_above_the_block_is_enough(self):
        self.assertEqual(self.check("\n// f(a) adds.\nint f(int a);\nint g(int a);\n"), [])

    def test_short_bodies_and_details_need_none(self):
        self.assertEqual(self.check("\ninline int f() { return 1; }\n"), [])
        self.assertEqual(
            self.check("\nnamespace detail {\nint f() {\n}\nint g();\n}  // namespace detail\n"), []
        )

    def test_long_bodies_need_one(self):
        self.assertEqual(self.check("\ninline int f() {\n  a;\n  b;\n  c;\n  d;\n}\n"), [4])


class Whole(unittest.TestCase):
    def test_every_rule_has_words(self):
        for rule in rules.RULES:
            self.assertTrue(rule.__doc__, rule.__name__)


if __name__ == "__main__":
    unittest.main()
