#include "base/named.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/errors.hpp"

namespace tulle {
namespace {

struct Tool {
  const char* name;
  int weight;
};
enum class Metal { kIron, kTin };
const char* to_string(Metal m) { return m == Metal::kIron ? "iron" : "tin"; }

constexpr std::array kTools = {Tool{"saw", 2}, Tool{"file", 1}};
constexpr std::array kMetals = {Metal::kIron, Metal::kTin};

TEST(Named, FindsByMemberAndByToString) {
  EXPECT_EQ(find_named(kTools, "file", "tool").weight, 1);
  EXPECT_EQ(&find_named(kTools, "saw", "tool"), &kTools[0]);
  EXPECT_EQ(find_named(kMetals, "tin", "metal"), Metal::kTin);
}

TEST(Named, WhatIsNotThereIsNullOrASentenceThatListsAll) {
  EXPECT_EQ(look_up(kTools, "fil"), nullptr);
  EXPECT_EQ(look_up(kTools, ""), nullptr);
  EXPECT_EQ(look_up(std::vector<Tool>{}, "saw"), nullptr);
  EXPECT_EQ(testing_data::message_of([] { find_named(kTools, "fil", "tool"); }),
            "there is no tool \"fil\"; choose one of: saw, file");
  EXPECT_EQ(testing_data::message_of([] { find_named(kMetals, "gold", "metal"); }),
            "there is no metal \"gold\"; choose one of: iron, tin");
}

}  // namespace
}  // namespace tulle
