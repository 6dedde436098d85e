// base/: errors, checked arithmetic, half floats, JSON, files, threads, hashing, text of times and sizes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "base/checked.hpp"
#include "base/env.hpp"
#include "base/file.hpp"
#include "base/half.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/system.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;

struct TemporaryFolder {
  fs::path path = fs::temp_directory_path() / fmt::format("tulle-base-{}", ::getpid());
  TemporaryFolder() { fs::create_directories(path); }
  ~TemporaryFolder() { fs::remove_all(path); }
};

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator{}));
}

TEST(Checked, OverflowIsNothing) {
  EXPECT_EQ(checked_product({3, 4, 5}), 60);
  EXPECT_EQ(checked_product({}), 1);
  EXPECT_FALSE(checked_product({std::int64_t{1} << 40, std::int64_t{1} << 40}));
  EXPECT_FALSE(checked_product({4, -1}));
  EXPECT_FALSE(checked_add<std::int64_t>(std::numeric_limits<std::int64_t>::max(), 1));
  EXPECT_EQ(checked_mul<std::uint64_t>(1u << 31, 2), std::uint64_t{1} << 32);
}

TEST(Half, EveryF16SurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const F16 h{static_cast<std::uint16_t>(bits)};
    const float f = to_f32(h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_f32(from_f32<F16>(f))));
    } else {
      EXPECT_EQ(from_f32<F16>(f).bits, h.bits) << bits;
    }
  }
}

TEST(Half, EveryBf16SurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Bf16 h{static_cast<std::uint16_t>(bits)};
    const float f = to_f32(h);
    if (!std::isnan(f)) {
      EXPECT_EQ(from_f32<Bf16>(f).bits, h.bits);
    }
  }
}

RC_GTEST_PROP(Half, RoundsToTheNearestNeighbour, (std::uint32_t bits)) {
  const float x = std::bit_cast<float>(bits);
  RC_PRE(std::isfinite(x) && std::abs(x) < 60000.0f);
  const F16 h = from_f32<F16>(x);
  const double error = std::abs(static_cast<double>(to_f32(h)) - x);
  for (int step : {-1, 1}) {
    const F16 neighbour{static_cast<std::uint16_t>(h.bits + step)};
    const float other = to_f32(neighbour);
    if (std::isfinite(other)) RC_ASSERT(error <= std::abs(static_cast<double>(other) - x));
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(from_f32<F16>(1.0f).bits, 0x3c00);
  EXPECT_EQ(from_f32<F16>(65520.0f).bits, 0x7c00);  // rounds to infinity
  EXPECT_EQ(from_f32<F16>(65519.0f).bits, 0x7bff);
  EXPECT_EQ(from_f32<F16>(0x1p-24f).bits, 0x0001);      // least subnormal
  EXPECT_EQ(from_f32<Bf16>(1.00390625f).bits, 0x3f80);  // tie to even
  EXPECT_TRUE(std::isnan(to_f32(from_f32<Bf16>(std::nanf("")))));
}

TEST(Tensor, BufferIsAlignedAndRefusesTheImpossible) {
  Buffer<float> buffer(1001);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
  EXPECT_EQ(buffer.size(), 1001u);
  try {
    Buffer<float> huge(std::size_t{1} << 62);
    FAIL() << "an allocation of 2^64 bytes went through";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kOutOfMemory);
  }
}

TEST(Tensor, RowFollowsStrides) {
  std::vector<float> data(2 * 3 * 4 * 8);
  std::iota(data.begin(), data.end(), 0.0f);
  TensorView view = view_of(data.data(), {2, 3, 4, 8});
  EXPECT_EQ(*view.row<float>(1, 2, 3), data[((1 * 3 + 2) * 4 + 3) * 8]);
  view.stride = {3 * 4 * 8, 8, 3 * 8, 1};  // the same memory seen as [batch, heads, tokens, d]
  EXPECT_EQ(*view.row<float>(0, 1, 2), data[(2 * 3 + 1) * 8]);
}

TEST(Json, ErrorsNamePlaceAndNearestKey) {
  EXPECT_FALSE(parse_json("{\"a\": }", "x.json"));
  EXPECT_NE(std::string(parse_json("{\"a\": }", "x.json").error().what()).find("x.json"), std::string::npos);
  EXPECT_FALSE(parse_json(std::string(100, '[') + std::string(100, ']'), "deep.json"));
  const Json object = {{"blok_q", 3}};
  const std::string_view known[] = {"block_q", "order"};
  try {
    refuse_unknown_keys(object, known, "p.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean \"block_q\""), std::string::npos) << e.what();
  }
  EXPECT_THROW(json_get<int>(Json{{"n", "text"}}, "n", 0, "p.json"), Error);
  EXPECT_THROW(json_need<int>(Json::object(), "n", "p.json"), Error);
  for (const char* number :
       {"3.5", "3.0", "1e3", "2147483648", "-2147483649", "18446744073709551615", "true", "1e300"}) {
    EXPECT_THROW(json_get<int>(Json{{"n", Json::parse(number)}}, "n", 0, "p.json"), Error) << number;
  }
  EXPECT_EQ(json_get<int>(Json{{"n", -2147483647 - 1}}, "n", 0, "p.json"), -2147483647 - 1);
  EXPECT_EQ(json_get<std::uint64_t>(Json{{"n", ~0ull}}, "n", 0, "p.json"), ~0ull);
  EXPECT_THROW(json_get<std::uint64_t>(Json{{"n", -1}}, "n", 0, "p.json"), Error);
}

TEST(File, AtomicWriteLeavesNothingBehindOnFailure) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path / "a.txt", "first");
  EXPECT_EQ(read_file(folder.path / "a.txt"), "first");
  EXPECT_THROW(write_through_temporary(folder.path / "a.txt",
                                       [](const fs::path& p) {
                                         std::ofstream(p) << "half";
                                         fail(ErrorCode::kIo, "planted");
                                       }),
               Error);
  EXPECT_EQ(read_file(folder.path / "a.txt"), "first");
  EXPECT_EQ(files_in(folder.path), 1u);
  EXPECT_THROW(read_file(folder.path / "a.txt", 3), Error);
  EXPECT_THROW(read_file(folder.path / "none"), Error);
  EXPECT_THROW(read_file(folder.path), Error);
}

TEST(File, OutputFolderThatCannotBeMade) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path / "file", "x");
  EXPECT_THROW(prepare_output_folder(folder.path / "file" / "sub"), Error);
  EXPECT_THROW(prepare_output_folder(folder.path / "file"), Error);
  EXPECT_NO_THROW(prepare_output_folder(folder.path / "new" / "sub"));
  EXPECT_EQ(files_in(folder.path / "new" / "sub"), 0u);
}

TEST(Threads, CoversEveryIndexOnceAndRethrows) {
  for (int width : {1, 2, 3}) {
    const Threads threads(width);
    EXPECT_EQ(threads.width(), width);
    std::vector<std::atomic<int>> seen(1000);
    threads.parallel_for(1000, [&](std::int64_t i) { ++seen[static_cast<std::size_t>(i)]; });
    for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
    std::atomic<std::int64_t> sum = 0;
    threads.parallel_ranges(1001, 64, [&](std::int64_t b, std::int64_t e) { sum += e - b; });
    EXPECT_EQ(sum.load(), 1001);
    EXPECT_THROW(threads.parallel_for(10, [](std::int64_t i) { require(i != 7, "planted"); }), Error);
  }
}

TEST(Hash, KnownValueAndSeed) {
  EXPECT_EQ(hash_hex(hash_bytes({})), "2d06800538d394c2");  // XXH3-64 of no bytes, published
  const std::string a = "tulle";
  EXPECT_NE(hash_span<char>(a, 0), hash_span<char>(a, 1));
}

TEST(Text, TimesAndSizes) {
  EXPECT_EQ(human_seconds(0.83), "0.8 s");
  EXPECT_EQ(human_seconds(42), "42 s");
  EXPECT_EQ(human_seconds(100), "1 m 40 s");
  EXPECT_EQ(human_seconds(3700), "1 h 01 m");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(300.0 * (1 << 20)), "300 MiB");
}

TEST(Text, NearestWord) {
  const std::vector<std::string> words = {"circle", "square", "triangle"};
  EXPECT_EQ(nearest_word("cirle", words), "circle");
  EXPECT_EQ(nearest_word("xyzzyx", words), "");
}

TEST(System, FactsAreSane) {
  EXPECT_FALSE(cpu_name().empty());
  EXPECT_GE(cpu_count(), 1);
  EXPECT_GT(available_memory(), std::int64_t{1} << 20);
  EXPECT_GT(peak_memory(), std::int64_t{1} << 20);
  EXPECT_FALSE(cpu_has("no_such_flag"));
}

TEST(Log, SinkReceivesLinesAtOrAboveTheLevel) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  log(LogLevel::kError, "planted {}", 7);
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "planted 7");
}

TEST(Env, EveryVariableIsDocumented) {
  for (const EnvVariable& v : env_variables()) {
    EXPECT_GT(std::string(v.help).size(), 5u) << v.name;
  }
  EXPECT_GT(env().timeout_s, 0);
}

}  // namespace
}  // namespace tulle
