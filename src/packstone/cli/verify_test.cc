// convert writes a certificate, and verify accepts it only while every bit of both checkpoints and
// of the certificate is as it was.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>

#include "packstone/checkpoint/certificate.h"
#include "packstone/cli/test_call.h"
#include "packstone/container/file_map.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A llama of one layer with a few thousand weights in Q4_1, so that every byte can be tried.
tiny::Gguf smallest() {
  constexpr std::int64_t kWidth = 32, kRows = 4;
  tiny::Gguf made = tiny::gguf("llama", 1);
  for (const char* key : {"embedding_length", "feed_forward_length"})
    made.set(std::string("llama.") + key, std::uint32_t{kWidth});
  made.set("llama.attention.head_count", std::uint32_t{2});
  made.set("llama.attention.head_count_kv", std::uint32_t{1});
  made.set("tokenizer.ggml.tokens", GgufArray{std::vector<std::string>{"<a>", "<b>", "<c>", "d"}});
  made.set("tokenizer.ggml.token_type", GgufArray{std::vector<std::int32_t>{3, 3, 3, 1}});
  made.set("tokenizer.ggml.merges", GgufArray{std::vector<std::string>{}});
  std::mt19937 random(5);
  for (tiny::Tensor& tensor : made.tensors) {
    const bool vector = tensor.shape.size() == 1;
    tensor.shape.back() = kWidth;
    if (vector) {
      tensor.bytes.resize(kWidth * sizeof(float));
      continue;
    }
    const bool heads =
        tensor.name.ends_with("attn_k.weight") || tensor.name.ends_with("attn_v.weight");
    tensor.shape[0] = tensor.name == "token_embd.weight" ? kRows : heads ? kWidth / 2 : kWidth;
    tensor.type = "Q4_1";
    tensor.bytes.resize(static_cast<std::size_t>(tensor.shape[0]) * 20);
    for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
      const bool high = i % 20 == 1 || i % 20 == 3;  // of the half floats: finite
      tensor.bytes[i] = static_cast<std::byte>(high ? random() % 0x40 : random() % 256);
    }
  }
  return made;
}

class Verify : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(tiny::write(folder_ / "small.gguf", smallest()).has_value());
    ok({"convert", path("small.gguf"), path("small"), "--to", "mlx-affine"});
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  Json ok(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const Called called = call(arguments);
    EXPECT_EQ(called.code, 0) << called.err << called.out;
    return called.json();
  }
  // verify of a target against a source; one thread, as thousands of calls follow each other.
  Called verify(std::string_view target, std::string_view source) const {
    return call({"verify", path(target), "--against", path(source), "--threads", "1", "--json"});
  }
  // Puts a text in a file's place while it lives.
  class Swapped {
   public:
    Swapped(fs::path file, std::string_view text) : file_(std::move(file)), first_(content(file_)) {
      tiny::write_text(file_, text);
    }
    ~Swapped() { tiny::write_text(file_, first_); }

   private:
    fs::path file_;
    std::string first_;
  };
  int with(std::string_view file, std::string_view text) const {
    const Swapped swapped(folder_ / file, text);
    return verify("small", "small.gguf").code;
  }
  tiny::TemporaryFolder folder_;
};

TEST_F(Verify, HoldsAndPrintsItsKeys) {
  const Json json = ok({"verify", path("small"), "--against", path("small.gguf")});
  for (const char* key : {"holds", "certificate", "source", "source_sha256", "target_sha256",
                          "worst_verdict", "values_compared", "tensors", "problems",
                          "problem_count", "peak_memory_measured", "seconds"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["holds"], true);
  EXPECT_EQ(json["values_compared"], true);
  EXPECT_EQ(json["worst_verdict"], "same_bytes");
  EXPECT_EQ(json["tensors"].size(), 11u);
  for (const char* key : {"name", "from", "to", "verdict", "conditions"})
    EXPECT_TRUE(json["tensors"][0].contains(key)) << key;
  const Called words = call({"verify", path("small"), "--against", path("small.gguf")});
  EXPECT_EQ(words.code, 0);
  EXPECT_NE(words.out.find("the certificate holds"), std::string::npos);
}

// Each container to each, paired rows, vectors that are widened, Gemma's 1 + w, and back again.
TEST_F(Verify, HoldsForEveryPairOfContainers) {
  ASSERT_TRUE(tiny::write(folder_ / "model.gguf", tiny::gguf("llama")).has_value());
  ASSERT_TRUE(tiny::write(folder_ / "gemma.gguf", tiny::gguf("gemma3_text")).has_value());
  ASSERT_TRUE(tiny::write(folder_ / "qwen.gguf", tiny::gguf("qwen2")).has_value());
  ASSERT_TRUE(tiny::write(folder_ / "mlx", tiny::mlx_folder("llama", 4, 32)).has_value());
  ok({"quantize", path("model.gguf"), path("q8.gguf"), "--method", "rtn", "--to", "gguf:Q8_0"});
  const std::vector<std::array<std::string, 3>> moves = {
      {"q8.gguf", "q8mlx", "mlx-affine"},     {"q8mlx", "q8back.gguf", "gguf:Q8_0"},
      {"model.gguf", "float", "float32"},     {"float", "float.gguf", "gguf:F32"},
      {"gemma.gguf", "gemma", "float32"},     {"gemma", "gemmaback.gguf", "gguf:F32"},
      {"qwen.gguf", "qwen", "float32"},       {"qwen", "qwenback.gguf", "gguf:F32"},
      {"mlx", "mlx41.gguf", "gguf:Q4_1"},     {"mlx41.gguf", "mlx2", "mlx-affine"},
      {"q8.gguf", "q8wide", "float32"},       {"q8.gguf", "q8copy.gguf", "gguf:Q8_0"},
      {"q8wide", "q8floats.gguf", "gguf:F32"}};
  for (const auto& [source, target, layout] : moves) {
    const Json made = ok({"convert", path(source), path(target), "--to", layout});
    EXPECT_TRUE(fs::exists(made["certificate"].get<std::string>())) << target;
    EXPECT_EQ(made["certificate"],
              certificate_path(path(target), target.ends_with(".gguf") ? ContainerKind::kGguf
                                                                       : ContainerKind::kFolder)
                  .string());
    const Called checked = verify(target, source);
    EXPECT_EQ(checked.code, 0) << target << checked.err << checked.out;
    EXPECT_EQ(checked.json()["worst_verdict"], made["worst_verdict"]) << target;
    EXPECT_EQ(call({"verify", path(target), "--threads", "2"}).code, 0) << target;
  }
}

TEST_F(Verify, TheSameInputGivesTheSameCertificate) {
  const std::string first = content(folder_ / "small/packstone.certificate.json");
  for (const char* threads : {"1", "2", "5"}) {
    ok({"convert", path("small.gguf"), path("again"), "--to", "mlx-affine", "--force", "--threads",
        threads});
    EXPECT_EQ(content(folder_ / "again/packstone.certificate.json"), first) << threads;
  }
  EXPECT_EQ(call({"verify", path("again")}).code, 0);
}

// One bit in every byte of the weight files and the config: weights, headers, padding, metadata; of
// the tokenizer's files and the index in every fifth byte.
TEST_F(Verify, OneBitInAnyByteOfEitherCheckpointIsFound) {
  std::vector<fs::path> files = {folder_ / "small.gguf"};
  for (const auto& entry : fs::directory_iterator(folder_ / "small"))
    if (entry.path().filename() != kCertificateName) files.push_back(entry.path());
  ASSERT_GE(files.size(), 5u);
  std::size_t tried = 0;
  for (const fs::path& file : files) {
    const std::string first = content(file), name = file.filename().string();
    const bool sparse = name.starts_with("tokenizer") || name.ends_with(".index.json");
    for (std::size_t at = 0; at < first.size(); at += sparse ? 5 : 1, ++tried) {
      std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(static_cast<char>(first[at] ^ (1 << (at * 5 + 3) % 8))).flush();
      const int code = verify("small", "small.gguf").code;
      // 5 would say that this build cannot read it; the truth is that the file has changed.
      EXPECT_TRUE(code == 3 || code == 4) << file << " byte " << at << ": " << code;
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(first[at]);
    }
  }
  EXPECT_GT(tried, 9'000u);
  EXPECT_EQ(verify("small", "small.gguf").code, 0);
}

// A bit that makes the model one of an unknown kind: the file that has changed is named.
TEST_F(Verify, AChangedFileThatNoReaderKnowsIsNamed) {
  const fs::path file = folder_ / "small/config.json";
  std::string text = content(file);
  const std::size_t at = text.find("\"llama\"");
  ASSERT_NE(at, std::string::npos);
  text[at + 1] = 'm';
  const Swapped swapped(file, text);
  const Called called = verify("small", "small.gguf");
  EXPECT_EQ(called.code, 3) << called.err;
  const Json json = called.json();
  EXPECT_EQ(json["holds"], false);
  EXPECT_EQ(json["problems"][0]["at"], "target.files: config.json");
}

TEST_F(Verify, RandomBitsOfATinyModelAreFound) {
  ASSERT_TRUE(tiny::write(folder_ / "mlx", tiny::mlx_folder("llama", 4, 32)).has_value());
  tiny::write_text(folder_ / "mlx/tokenizer.json", "{\"model\": {}}");
  tiny::write_text(folder_ / "mlx/README.md", "a model");
  ok({"convert", path("mlx"), path("out"), "--to", "float32"});
  std::vector<fs::path> files;
  for (const char* folder : {"mlx", "out"})
    for (const auto& entry : fs::directory_iterator(folder_ / folder))
      if (entry.path().filename() != kCertificateName) files.push_back(entry.path());
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    const fs::path& file = files[random() % files.size()];
    std::string text = content(file);
    const std::size_t at = random() % text.size();
    text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
    const Swapped swapped(file, text);
    EXPECT_NE(verify("out", "mlx").code, 0) << file << " byte " << at;
  }
  EXPECT_EQ(verify("out", "mlx").code, 0);
}

TEST_F(Verify, OneBitInAnyByteOfTheCertificateIsFound) {
  const fs::path file = folder_ / "small/packstone.certificate.json";
  const std::string first = content(file);
  for (std::size_t at = 0; at < first.size(); at += 7) {
    std::string text = first;
    text[at] = static_cast<char>(text[at] ^ (1 << at % 8));
    tiny::write_text(file, text);
    const int code = verify("small", "small.gguf").code;
    EXPECT_TRUE(code == 3 || code == 4 || code == 5) << "byte " << at << ": " << code;
  }
}

// Every value changed, every member taken out, an item more or less in every array.
TEST_F(Verify, EveryFieldOfTheCertificateCounts) {
  constexpr std::string_view kFile = "small/packstone.certificate.json";
  const Json first = Json::parse(content(folder_ / kFile));
  const Json flat = first.flatten();
  std::size_t tried = 0;
  for (const auto& [pointer, value] : flat.items()) {
    const Json::json_pointer at(pointer);
    Json changed = first;
    if (value.is_number())
      changed[at] = value.get<std::uint64_t>() + 1;
    else if (value.is_string())
      changed[at] = value == "same" ? "paired_heads" : "another";
    else
      continue;  // an empty array or object
    EXPECT_NE(with(kFile, certificate_text(changed)), 0) << pointer;
    ++tried;
    Json less = first;
    Json& parent = less[at.parent_pointer()];
    if (parent.is_array())
      parent.erase(std::stoul(at.back()));
    else
      parent.erase(at.back());
    EXPECT_NE(with(kFile, certificate_text(less)), 0) << pointer;
    if (parent.is_array()) {
      Json more = first;
      more[at.parent_pointer()].push_back(value);
      EXPECT_NE(with(kFile, certificate_text(more)), 0) << pointer;
    }
  }
  EXPECT_GT(tried, 300u);
  Json swapped = first;
  std::swap(swapped["tensors"][0], swapped["tensors"][1]);
  EXPECT_EQ(with(kFile, certificate_text(swapped)), 3);
  EXPECT_EQ(with(kFile, first.dump()), 3);  // the same members in another form
  EXPECT_EQ(with(kFile, certificate_text(first)), 0);
}

// Sums made to fit a changed target do not help: its values are others.
TEST_F(Verify, AForgedCertificateOfChangedWeightsFails) {
  const fs::path file = folder_ / "small/packstone.certificate.json";
  Json document = Json::parse(content(file));
  std::string weights = content(folder_ / "small/model.safetensors");
  Json& target = document["target"];
  for (Json& stored : target["stored"]) {
    if (stored["name"] != "model.layers.0.mlp.up_proj.weight") continue;
    const auto offset = stored["offset"].get<std::size_t>();
    weights[offset] = static_cast<char>(weights[offset] ^ 1);
    stored["sha256"] = sha256_text(weights.substr(offset, stored["bytes"].get<std::size_t>()));
  }
  tiny::write_text(folder_ / "small/model.safetensors", weights);
  std::string lines;
  for (Json& stored : target["files"]) {
    const std::string name = stored["name"];
    stored["sha256"] = sha256_text(content(folder_ / "small" / name));
    lines += fmt::format("{}  {}\n", stored["sha256"].get<std::string>(), name);
  }
  target["sha256"] = sha256_text(lines);
  tiny::write_text(file, certificate_text(document));
  const Called called = verify("small", "small.gguf");
  EXPECT_EQ(called.code, 3) << called.err;
  const Json json = called.json();
  EXPECT_EQ(json["values_compared"], true);
  EXPECT_EQ(json["problems"][0]["at"], "model.layers.0.mlp.up_proj.weight") << called.out;
}

TEST_F(Verify, FilesMoreAndLessAreFound) {
  ok({"convert", path("small"), path("float"), "--to", "float32"});
  for (const char* folder : {"small", "float"}) {  // the source, then the target
    tiny::write_text(folder_ / folder / "extra.bin", "x");
    EXPECT_EQ(verify("float", "small").code, 3) << folder;
    fs::remove(folder_ / folder / "extra.bin");
    EXPECT_EQ(verify("float", "small").code, 0) << folder;
    tiny::write_text(folder_ / folder / ".hidden", "x");  // no reader opens it
    EXPECT_EQ(verify("float", "small").code, 0) << folder;
    const Swapped gone(folder_ / folder / "tokenizer.json", "");
    fs::remove(folder_ / folder / "tokenizer.json");
    EXPECT_EQ(verify("float", "small").code, 3) << folder;
  }
}

TEST_F(Verify, AnotherSourceIsFound) {
  tiny::Gguf other = smallest();
  other.tensors.back().bytes[0] ^= std::byte{1};
  ASSERT_TRUE(tiny::write(folder_ / "other.gguf", other).has_value());
  EXPECT_EQ(verify("small", "other.gguf").code, 3);
  EXPECT_EQ(verify("small", "small").code, 3);
  EXPECT_EQ(verify("small", "nothing").code, 2);
  EXPECT_EQ(verify("nothing", "small.gguf").code, 2);
  fs::remove(folder_ / "small.gguf");
  const Called called = call({"verify", path("small")});
  EXPECT_EQ(called.code, 2);
  EXPECT_NE(called.err.find("--against"), std::string::npos) << called.err;
}

TEST_F(Verify, TheSourceIsFoundByItsBytesUnderAnyName) {
  fs::rename(folder_ / "small.gguf", folder_ / "zzz.gguf");
  tiny::Gguf other = smallest();
  other.tensors.back().bytes[0] ^= std::byte{1};
  ASSERT_TRUE(tiny::write(folder_ / "aaa.gguf", other).has_value());
  const Json json = ok({"verify", path("small")});
  EXPECT_EQ(fs::path(json["source"].get<std::string>()).filename(), "zzz.gguf");
}

TEST_F(Verify, ACertificateMayLieElsewhere) {
  fs::rename(folder_ / "small/packstone.certificate.json", folder_ / "c.json");
  EXPECT_EQ(verify("small", "small.gguf").code, 2);
  EXPECT_EQ(call({"verify", path("small"), "--certificate", path("c.json")}).code, 0);
}

// SEC-17: a link out of the folder is not followed.
TEST_F(Verify, ACertificateThatLeadsOutOfTheFolderIsRefused) {
  fs::rename(folder_ / "small/packstone.certificate.json", folder_ / "c.json");
  fs::create_symlink("../c.json", folder_ / "small/packstone.certificate.json");
  EXPECT_EQ(verify("small", "small.gguf").code, 4);
}

// Names that are not UTF-8, and links, in a source folder.
TEST_F(Verify, OddFilesOfASourceFolder) {
  tiny::write_text(folder_ / "small" / "\xFF\xFE.bin", "x");
  fs::create_symlink("../small.gguf", folder_ / "small" / "link.gguf");
  fs::create_symlink("config.json", folder_ / "small" / "alias.json");
  fs::create_directory(folder_ / "small" / "sub");
  ASSERT_EQ(mkfifo(path("small/pipe").c_str(), 0600), 0);
  ok({"convert", path("small"), path("float"), "--to", "float32"});
  const Json json = Json::parse(content(folder_ / "float/packstone.certificate.json"));
  std::vector<std::string> names;
  for (const Json& file : json["source"]["files"]) names.push_back(file["name"]);
  EXPECT_EQ(std::ranges::count(names, "alias.json"), 1);
  EXPECT_EQ(std::ranges::count(names, "packstone.certificate.json"), 1);
  for (const char* absent : {"link.gguf", "sub", "pipe"})
    EXPECT_EQ(std::ranges::count(names, absent), 0) << absent;
  EXPECT_EQ(verify("float", "small").code, 0);
  tiny::write_text(folder_ / "small" / "\xFF\xFE.bin", "y");
  EXPECT_EQ(verify("float", "small").code, 3);
}

// Hostile certificates: exit 4 (5 for another version) and words that say where.
TEST_F(Verify, HostileCertificatesAreRefused) {
  const std::string good = content(folder_ / "small/packstone.certificate.json");
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string nested = "{\"format\": " + std::string(100'000, '[');
  struct Case {
    std::string text;
    int code;
    std::string_view words;
  };
  const Case cases[] = {
      {"", 4, "no JSON"},
      {"null", 4, "an object"},
      {"[]", 4, "an object"},
      {"{}", 4, "format"},
      {good.substr(0, good.size() / 2), 4, "no JSON"},
      {good + "{}", 4, "no JSON"},
      {nested, 4, "nesting"},
      {replaced("\"version\": 1", "\"version\": 2"), 5, "version"},
      {replaced("\"version\": 1", "\"version\": 1.0"), 4, "version"},
      {replaced("\"version\": 1", "\"version\": 1e999"), 4, "no JSON"},
      {replaced("\"version\": 1", "\"version\": 1, \"version\": 1"), 4, "twice"},
      {replaced("\"bytes\": ", "\"bytes\": -"), 4, "bytes"},
      {replaced("\"bytes\": ", "\"bytes\": 99999999999999999999999"), 4, "bytes"},
      {replaced("\"container\": \"gguf\"", "\"container\": \"zip\""), 4, "container"},
      {replaced("\"sha256\": \"", "\"sha256\": \"Z"), 4, "sha256"},
      {replaced("\"files\": [", "\"files\": [7,"), 4, "files"},
      {replaced("\"conditions\": [", "\"conditions\": [[],"), 4, "conditions"},
      {replaced("\"worst_verdict\"", "\"more\": {}, \"worst_verdict\""), 4, "more"},
      {replaced("\"worst_verdict\"", "\"\\ud800\": 1, \"worst_verdict\""), 4, "no JSON"},
      {std::string("\xFF\xFE{\0}", 5), 4, "no JSON"},
  };
  for (const Case& one : cases) {
    tiny::write_text(folder_ / "hostile.json", one.text);
    const Called called = call({"verify", path("small"), "--against", path("small.gguf"),
                                "--certificate", path("hostile.json")});
    EXPECT_EQ(called.code, one.code) << one.words << called.err;
    EXPECT_NE(called.err.find(one.words), std::string::npos) << one.words << called.err;
  }
}

// A disk with room for the model but not for its certificate.
TEST_F(Verify, AFullDiskUnderTheCertificateLeavesNothing) {
  fs::create_directory(folder_ / "out");
  const auto bytes = fs::file_size(folder_ / "small.gguf");
  ASSERT_GT(fs::file_size(folder_ / "small/packstone.certificate.json"), bytes + 4096);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes + 1024, bytes + 1024};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(call({"convert", path("small.gguf"), path("out/x.gguf"), "--to", "gguf:Q4_1"}).code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 6);
  EXPECT_TRUE(fs::is_empty(folder_ / "out"));
}

// A certificate never stands beside a file that it does not speak of.
TEST_F(Verify, AReplacedFileTakesItsCertificateWithIt) {
  const std::vector<std::string> convert = {"convert", path("small"), path("x.gguf"), "--to",
                                            "gguf:Q4_1"};
  ok(convert);
  ASSERT_TRUE(fs::exists(folder_ / "x.gguf.certificate.json"));
  fs::remove(folder_ / "x.gguf");
  EXPECT_EQ(call(convert).code, 2);  // the certificate is there
  EXPECT_FALSE(fs::exists(folder_ / "x.gguf"));
  std::vector<std::string> forced = convert;
  forced.push_back("--force");
  ok(forced);
  EXPECT_EQ(call({"verify", path("x.gguf")}).code, 0);
  ok({"quantize", path("small"), path("x.gguf"), "--method", "rtn", "--to", "gguf:Q8_0",
      "--force"});
  EXPECT_FALSE(fs::exists(folder_ / "x.gguf.certificate.json"));
  fs::create_directory(folder_ / "x.gguf.certificate.json");
  EXPECT_EQ(call(forced).code, 2);
}

}  // namespace
}  // namespace packstone::cli
