#include "dit/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "base/file.hpp"
#include "base/half.hpp"
#include "dit/temporary.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;

template <class T>
SafetensorsEntry entry(const std::string& name, const std::string& type, std::vector<std::int64_t> shape,
                       const std::vector<T>& values) {
  return {name, type, std::move(shape), std::as_bytes(std::span(values))};
}

std::string with_header(const std::string& json, const std::string& data = "") {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>((json.size() >> (8 * i)) & 0xff);
  return file + json + data;
}

// Parses a whole file held in memory, as SafetensorsFile::open does.
Expected<SafetensorsHeader> parse(std::string_view file) {
  if (file.size() < 8) return Error(ErrorCode::kBadFile, "short");
  const auto bytes = std::as_bytes(std::span(file));
  const auto length = parse_safetensors_length(bytes.first<8>(), file.size(), "test");
  if (!length) return length.error();
  return parse_safetensors_header(file.substr(8, length.value()), file.size() - 8 - length.value(), "test");
}

std::string problem(const std::string& json, std::size_t data = 0) {
  const auto header = parse(with_header(json, std::string(data, '\0')));
  return header ? "" : header.error().what();
}

const char* kGood =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]},)"
    R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"z":{"dtype":"I8","shape":[0,7],"data_offsets":[20,20]}})";

TEST(Safetensors, AcceptsAWellFormedHeader) {
  const auto header = parse(with_header(kGood, std::string(20, '\0')));
  ASSERT_TRUE(header) << header.error().what();
  ASSERT_EQ(header.value().tensors.size(), 3u);
  EXPECT_EQ(header.value().tensors[0].name, "a");
  EXPECT_EQ(header.value().tensors[1].elements(), 4);
  EXPECT_EQ(header.value().metadata.at("format"), "pt");
  EXPECT_EQ(header.value().data_begin, 8 + std::strlen(kGood));
  EXPECT_EQ(problem(std::string(kGood) + "   ", 20), "");
  EXPECT_EQ(problem("{}"), "");
}

TEST(Safetensors, RefusesWhatBreaksARule) {
  struct Case {
    const char* json;
    std::size_t data;
    const char* says;
  };
  const Case cases[] = {
      {"[]", 0, "begin with '{'"},
      {" {}", 0, "begin with '{'"},
      {"", 0, "begin with '{'"},
      {"{} x", 0, "not valid JSON"},
      {"{", 0, "not valid JSON"},
      {"{\"a\":1}", 0, "a number where none may be"},
      {"{\"a\":null}", 0, "null where none may be"},
      {"{\"a\":[[[[]]]]}", 0, "a list where none may be"},
      {R"({"__metadata__":{"a":1}})", 0, "a number where none may be"},
      {R"({"__metadata__":{"a":{}}})", 0, "an object where none may be"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "stands twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "key \"a\" stands twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4, "key \"shape\" stands twice"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "are needed"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1}})", 4, "unknown key"},
      {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "a negative number"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "no integer"},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4, "too large"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "too large"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "do not fill"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "needs two numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "needs two numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "ends before it begins"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "a hole"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "an overlap"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "do not fill"},
      {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "do not fill"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "the file holds 5"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "the file holds 3"},
  };
  for (const Case& c : cases)
    EXPECT_NE(problem(c.json, c.data).find(c.says), std::string::npos) << c.json << " -> " << problem(c.json, c.data);
  EXPECT_NE(problem(std::string("{}\0{", 4)).find("zero byte"), std::string::npos);
  EXPECT_NE(problem("{\"\xff\":1}").find("not valid JSON"), std::string::npos);
}

TEST(Safetensors, AcceptsSubByteTypesThatFillBytes) {
  EXPECT_EQ(problem(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2), "");
  EXPECT_EQ(problem(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3), "");
}

TEST(Safetensors, BoundsTheHeaderLength) {
  std::string file = with_header("{}");
  const auto length = [&](std::uint64_t value) {
    for (int i = 0; i < 8; ++i) file[i] = static_cast<char>((value >> (8 * i)) & 0xff);
    return parse(file);
  };
  EXPECT_TRUE(length(2));
  EXPECT_NE(std::string(length(3).error().what()).find("truncated"), std::string::npos);
  EXPECT_FALSE(length(kSafetensorsHeaderLimit + 1));
  EXPECT_FALSE(length(std::numeric_limits<std::uint64_t>::max()));
}

// Corrupts a header in every way that is cheap to draw; what is accepted must still cover the data exactly.
TEST(Safetensors, MutatedHeadersNeverLeaveTheirBounds) {
  const std::string good = with_header(kGood, std::string(20, '\1'));
  const std::string pieces[] = {"{",       "}",     "[",  "]", "\"", ",", ":", "0", "18446744073709551615",
                                "\\u0000", "\"a\"", "F64"};
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 150'000; ++i) {
    std::string file = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const std::size_t at = random() % file.size();
      switch (random() % 5) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file[at] = static_cast<char>(file[at] ^ (1 << (random() % 8)));
          break;
        case 2:
          file.erase(at, 1 + random() % 4);
          break;
        case 3:
          file.insert(at, pieces[random() % std::size(pieces)]);
          break;
        default:
          file.resize(at);
      }
      if (file.empty()) break;
    }
    const auto header = parse(file);
    if (!header) continue;
    ++accepted;
    std::uint64_t covered = 0;
    for (const auto& t : header.value().tensors) covered += t.bytes();
    ASSERT_EQ(header.value().data_begin + covered, file.size());
  }
  EXPECT_GT(accepted, 0);  // edits of metadata and data leave a legal file
}

TEST(Safetensors, WritesWhatItReads) {
  const TemporaryFolder folder;
  const std::vector<float> f{1.5f, -2.0f, 3.25f};
  const std::vector<Bf16> b{from_f32<Bf16>(0.5f)};
  const std::vector<F16> h{from_f32<F16>(-0.25f), from_f32<F16>(4.0f)};
  const std::vector<std::int8_t> i8{1, 2};
  const std::vector<SafetensorsEntry> entries{entry("f", "F32", {3}, f), entry("b", "BF16", {1, 1}, b),
                                              entry("h", "F16", {2}, h), entry("i", "I8", {2}, i8)};
  write_file_atomic(folder.path / "m.safetensors", serialize_safetensors(entries, {{"k", "v"}}));
  const auto set = SafetensorsSet::open_folder(folder.path, "m").value();
  EXPECT_EQ(set.names(), (std::vector<std::string>{"b", "f", "h", "i"}));
  const std::int64_t three[] = {3}, one[] = {1, 1}, two[] = {2};
  EXPECT_EQ(set.read_f32("f", three)[2], 3.25f);
  EXPECT_EQ(set.read_f32("b", one)[0], 0.5f);
  EXPECT_EQ(set.read_f32("h", two)[1], 4.0f);
  EXPECT_THROW(set.read_f32("i", two), Error);
  EXPECT_THROW(set.read_f32("f", two), Error);
  EXPECT_THROW(set.read_f32("missing", two), Error);
  EXPECT_THROW(serialize_safetensors(std::vector{entry("f", "F32", {4}, f)}), Error);
}

TEST(Safetensors, NamesANonFiniteElement) {
  const TemporaryFolder folder;
  const std::vector<float> f{1, std::numeric_limits<float>::quiet_NaN()};
  write_file_atomic(folder.path / "m.safetensors", serialize_safetensors(std::vector{entry("bad", "F32", {2}, f)}));
  const auto set = SafetensorsSet::open_folder(folder.path, "m").value();
  const std::int64_t two[] = {2};
  try {
    set.read_f32("bad", two);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("tensor \"bad\" holds nan at element 1"), std::string::npos) << e.what();
  }
}

class Shards : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder.path / "in");
    write_file_atomic(in() / "1.safetensors", serialize_safetensors(std::vector{entry("a", "F32", {1}, one)}));
    write_file_atomic(in() / "2.safetensors", serialize_safetensors(std::vector{entry("b", "F32", {1}, one)}));
    write_file_atomic(folder.path / "out.safetensors", serialize_safetensors(std::vector{entry("b", "F32", {1}, one)}));
  }
  fs::path in() const { return folder.path / "in"; }
  std::string open(const std::string& map) {
    write_file_atomic(in() / "m.safetensors.index.json", map);
    const auto set = SafetensorsSet::open_folder(in(), "m");
    return set ? "" : set.error().what();
  }
  void expect(const std::string& map, const std::string& says) {
    EXPECT_NE(open(map).find(says), std::string::npos) << map << " -> " << open(map);
  }

  TemporaryFolder folder;
  std::vector<float> one{1.0f};
};

TEST_F(Shards, AreReadThroughTheIndex) {
  EXPECT_EQ(open(R"({"metadata":{"total_size":8},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})"), "");
}

TEST_F(Shards, MustMatchTheIndex) {
  expect(R"({"weight_map":{"a":"1.safetensors"},"weight_map":{}})", "stands twice");
  expect(R"({"weight_map":{"a":"1.safetensors","c":"2.safetensors"}})", "not listed");
  expect(R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors"}})", "is not there");
  expect(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"}})", "is not there");
  expect(R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})", "but is listed in");
  expect(R"({"weight_map":{"a":7}})", "no file name");
  expect(R"({"weight_map":{}})", "is empty");
  expect(R"({})", "weight_map");
  expect("[1", "not valid JSON");
}

TEST_F(Shards, MayNotLeaveTheFolder) {
  expect(R"({"weight_map":{"a":"1.safetensors","b":"../out.safetensors"}})", "..");
  expect(R"({"weight_map":{"a":"1.safetensors","b":")" + (folder.path / "out.safetensors").string() + "\"}}",
         "absolute");
  fs::create_symlink(folder.path / "out.safetensors", in() / "link.safetensors");
  expect(R"({"weight_map":{"a":"1.safetensors","b":"link.safetensors"}})", "links out of the folder");
  expect(R"({"weight_map":{"a":"1.safetensors","b":"absent.safetensors"}})", "No such file");
  expect(R"({"weight_map":{"a":"1.safetensors","b":""}})", "empty");
}

TEST_F(Shards, BothSingleFileAndIndexAreRefused) {
  write_file_atomic(in() / "m.safetensors", serialize_safetensors({}));
  expect(R"({"weight_map":{"a":"1.safetensors"}})", "both of");
  EXPECT_FALSE(SafetensorsSet::open_folder(in(), "absent"));
  EXPECT_FALSE(SafetensorsSet::open_file(in()));
}

TEST_F(Shards, AFileThatShrinksGivesAnError) {
  const auto set = SafetensorsSet::open_file(in() / "1.safetensors").value();
  fs::resize_file(in() / "1.safetensors", 20);
  const std::int64_t shape[] = {1};
  EXPECT_THROW(set.read_f32("a", shape), Error);
}

}  // namespace
}  // namespace tulle
