// Every file of the corpus, and changed copies of it, through the functions that the fuzzers call.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/support/foreign_bytes.hpp"

namespace tulle::fuzz {
namespace {

namespace fs = std::filesystem;

// In the order of their names, so that a failure is the same on every machine.
std::vector<fs::path> corpus(const Target& target) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(TULLE_SOURCE_DIR) / "tests/fuzz/corpus" / target.name)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

bool run(const Target& target, const std::string& bytes) { return target.run(std::as_bytes(std::span(bytes))); }

class Corpus : public testing::TestWithParam<Target> {};

// The name of a file says what becomes of it: valid-*, refused-*, or found-* for what a fuzzer once stumbled over.
TEST_P(Corpus, FilesAreAcceptedOrRefusedAsTheirNamesSay) {
  int valid = 0, refused = 0;
  for (const fs::path& file : corpus(GetParam())) {
    SCOPED_TRACE(file.filename());
    const std::string name = file.filename().string();
    bool accepted = false;
    ASSERT_NO_THROW(accepted = run(GetParam(), read_file(file)));
    (accepted ? valid : refused) += 1;
    if (name.starts_with("valid-")) {
      EXPECT_TRUE(accepted);
    }
    if (name.starts_with("refused-")) {
      EXPECT_FALSE(accepted);
    }
  }
  EXPECT_GE(valid, 2);
  EXPECT_GE(refused, 2);
}

TEST_P(Corpus, ChangedFilesKeepThePromises) {
  std::mt19937 random(20261201);
  for (const fs::path& file : corpus(GetParam())) {
    SCOPED_TRACE(file.filename());
    const std::string whole = read_file(file);
    for (int i = 0; i < 500; ++i) ASSERT_NO_THROW(run(GetParam(), testing_data::mutated(whole, 160, random)));
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FuzzTargets, UnknownNamesAreRefused) { EXPECT_THROW(find_target("profil"), Error); }

}  // namespace
}  // namespace tulle::fuzz
