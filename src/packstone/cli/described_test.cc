// EXL3 and ParoQuant folders are described, and copied byte for byte with a certificate that one
// flipped bit breaks; whatever else is asked of them is refused with what would work.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "packstone/checkpoint/certificate.h"
#include "packstone/cli/test_call.h"
#include "tests/support/packed_folders.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Published {
  std::string name, layout, detail;
  tiny::Folder folder;
};

// All published forms: float and packed signs, each codebook, with and without the list of tensors.
std::vector<Published> published() {
  std::vector<Published> list = {
      {"native", "exl3", "exl3 3 bit mcg", tiny::exl3_folder()},
      {"legacy", "exl3", "exl3 3 bit 3inst", tiny::exl3_folder({".su", ".sv"}, "")},
      {"mul1", "exl3", "exl3 3 bit mul1", tiny::exl3_folder({".suh", ".svh"}, ".mul1")},
      {"bare", "exl3", "exl3 3 bit mcg", tiny::exl3_folder()},
      {"paroquant", "paroquant", "paroquant 4 bit g64 krot 8", tiny::paroquant_folder()}};
  list[3].folder.texts.clear();
  for (Published& one : list) {
    one.folder.generation_config = {{"temperature", 0.5}};
    one.folder.texts["tokenizer.json"] = "{\"model\": {}}";
  }
  return list;
}

class Described : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  Called verify(const std::string& target, const std::string& source) const {
    return call({"verify", path(target), "--against", path(source), "--threads", "1", "--json"});
  }
  void make(const Published& one) {
    ASSERT_TRUE(tiny::write(folder_ / one.name, one.folder));
    const Called called =
        call({"convert", path(one.name), path(one.name + "-copy"), "--to", one.layout, "--json"});
    ASSERT_EQ(called.code, 0) << called.err;
    const Json json = called.json();
    EXPECT_EQ(json["worst_verdict"], "same_bytes");
    EXPECT_TRUE(json["not_carried"].empty()) << json["not_carried"];
    const auto modules = static_cast<std::size_t>(std::ranges::count_if(
        json["tensors"], [&](const Json& tensor) { return tensor["to"] == one.layout; }));
    EXPECT_EQ(modules, 7u);
  }
  tiny::TemporaryFolder folder_;
};

TEST_F(Described, ACopyHasTheSameTensorsAndConfig) {
  for (const Published& one : published()) {
    SCOPED_TRACE(one.name);
    make(one);
    const std::string copy = one.name + "-copy";
    const Result<RawCheckpoint> raw = open_raw(path(copy));
    ASSERT_TRUE(raw) << raw.error().message;
    ASSERT_EQ(raw->tensors.size(), one.folder.tensors.size());
    tiny::Folder first = one.folder;
    for (const TensorView& view : raw->tensors) {
      EXPECT_EQ(view.type->name, first.at(view.name).type) << view.name;
      EXPECT_EQ(view.shape, first.at(view.name).shape) << view.name;
      EXPECT_TRUE(std::ranges::equal(view.bytes, first.at(view.name).bytes)) << view.name;
    }
    EXPECT_EQ(content(folder_ / copy / "config.json"), content(folder_ / one.name / "config.json"));
    for (const auto& [name, text] : one.folder.texts)
      EXPECT_EQ(content(folder_ / copy / name), text) << name;
    const Called checked = verify(copy, one.name);
    EXPECT_EQ(checked.code, 0) << checked.err << checked.out;
    EXPECT_EQ(call({"verify", path(copy)}).code, 0);
    const Json certificate = Json::parse(content(folder_ / copy / kCertificateName));
    std::size_t pairs = 0;
    for (const Json& pair : certificate["tensors"]) {
      EXPECT_EQ(pair["verdict"], "same_bytes");
      pairs += pair["source"]["layout"] == one.layout;
    }
    EXPECT_EQ(pairs, 7u);
    const Json same = call({"diff", path(one.name), path(copy), "--json"}).json();
    EXPECT_EQ(same["same_bytes"], certificate["tensors"].size());
    EXPECT_TRUE(same["different"].empty());
    // A copy of the copy is the copy.
    ASSERT_EQ(call({"convert", path(copy), path("again"), "--to", one.layout, "--force"}).code, 0);
    EXPECT_EQ(content(folder_ / "again/model.safetensors"),
              content(folder_ / copy / "model.safetensors"));
  }
}

TEST_F(Described, OneBitAnywhereBreaksTheCertificate) {
  for (const Published& one : published()) {
    if (one.name != "native" && one.name != "paroquant") continue;
    make(one);
    const std::string copy = one.name + "-copy";
    std::vector<fs::path> files;
    for (const std::string& folder : {one.name, copy})
      for (const auto& entry : fs::directory_iterator(folder_ / folder))
        files.push_back(entry.path());
    for (const fs::path& file : files) {
      const std::string first = content(file);
      const std::size_t step = std::max<std::size_t>(first.size() / 40, 1);
      for (std::size_t at = first.size() % 7; at < first.size(); at += step) {
        std::string text = first;
        text[at] = static_cast<char>(text[at] ^ (1 << at % 8));
        tiny::write_text(file, text);
        const int code = verify(copy, one.name).code;
        EXPECT_TRUE(code == 3 || code == 4 || code == 5) << file << " byte " << at << ": " << code;
      }
      tiny::write_text(file, first);
    }
    EXPECT_EQ(verify(copy, one.name).code, 0);
  }
}

// The certificate says what the files are: two folders that differ alike are found by their pairs.
TEST_F(Described, DiffAndVerifyNameTheModule) {
  const Published one = published()[0];
  make(one);
  tiny::Folder other = one.folder;
  const std::string name = "model.layers.0.mlp.up_proj.trellis";
  other.at(name).bytes[5] ^= std::byte{4};
  ASSERT_TRUE(tiny::write(folder_ / "other", other));
  const Called differs = call({"diff", path("native"), path("other"), "--json"});
  EXPECT_EQ(differs.code, 3);
  EXPECT_EQ(differs.json()["different"][0]["name"], "model.layers.0.mlp.up_proj.weight");
  EXPECT_NE(differs.out.find("byte 5 of '" + name + "'"), std::string::npos) << differs.out;
  EXPECT_EQ(verify("native-copy", "other").code, 3);
}

TEST_F(Described, InspectAndPlanDescribeThem) {
  for (const Published& one : published()) {
    SCOPED_TRACE(one.name);
    ASSERT_TRUE(tiny::write(folder_ / one.name, one.folder));
    const Json json = call({"inspect", path(one.name), "--json"}).json();
    std::size_t described = 0;
    for (const Json& tensor : json["tensors"]) {
      if (tensor["layout"] != one.layout) continue;
      ++described;
      EXPECT_EQ(tensor["detail"], one.detail);
      EXPECT_EQ(tensor["shape"], (Json{tiny::kWide, tiny::kWide}));
    }
    EXPECT_EQ(described, 7u);
    const Called planned = call({"plan", path(one.name), "--to", one.layout, "--json"});
    EXPECT_EQ(planned.code, 0) << planned.err;
    EXPECT_EQ(planned.json()["worst_verdict"], "same_bytes");
    EXPECT_EQ(call({"plan", path(one.name), "--to", one.layout}).code, 0);
  }
}

// D41: what cannot run is refused with what works.
TEST_F(Described, D41_EverythingElseIsRefusedWithWhatWorks) {
  for (const Published& one : published()) {
    SCOPED_TRACE(one.name);
    ASSERT_TRUE(tiny::write(folder_ / one.name, one.folder));
    for (const char* layout : {"mlx-affine", "float32", "gptq", "gguf:Q4_0"})
      for (const char* command : {"convert", "plan"}) {
        std::vector<std::string> words = {command, path(one.name), "--to", layout};
        if (words[0] == "convert") words.insert(words.begin() + 2, path("none"));
        const Called called = call(words);
        EXPECT_EQ(called.code, 5) << called.err;
        EXPECT_NE(called.err.find("--to " + one.layout), std::string::npos) << called.err;
        EXPECT_FALSE(fs::exists(folder_ / "none"));
      }
    for (std::vector<std::string> words : std::vector<std::vector<std::string>>{
             {"generate", path(one.name), "-p", "x"},
             {"quantize", path(one.name), path("none"), "--to", "gguf:Q4_0", "--method", "rtn"}}) {
      const Called called = call(words);
      EXPECT_EQ(called.code, 5) << called.err;
      EXPECT_NE(called.err.find("convert --to " + one.layout), std::string::npos) << called.err;
    }
  }
  ASSERT_TRUE(tiny::write(folder_ / "floats", tiny::wide_folder()));
  for (const char* layout : {"exl3", "paroquant"}) {
    const Called called = call({"convert", path("floats"), path("none"), "--to", layout});
    EXPECT_EQ(called.code, 5);
    EXPECT_NE(called.err.find("no module of it"), std::string::npos) << called.err;
    EXPECT_EQ(
        call({"quantize", path("floats"), path("none"), "--to", layout, "--method", "rtn"}).code,
        5);
  }
  EXPECT_EQ(call({"convert", path("native"), path("none"), "--to", "paroquant"}).code, 5);
  EXPECT_EQ(call({"convert", path("native"), path("none.gguf"), "--to", "exl3"}).code, 2);
}

}  // namespace
}  // namespace packstone::cli
