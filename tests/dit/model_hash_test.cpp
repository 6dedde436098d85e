#include "dit/model_hash.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "dit/safetensors.hpp"
#include "dit/temporary.hpp"

namespace tulle {
namespace {

std::string file_of(const std::string& tensor, float value, std::size_t count = 2) {
  const std::vector<float> values(count, value);
  const std::vector<SafetensorsEntry> entries = {
      {tensor, "F32", {static_cast<std::int64_t>(count)}, std::as_bytes(std::span(values))}};
  return serialize_safetensors(entries);
}

TEST(ModelHash, IsXxh3OverTheShardsInOrder) {
  const TemporaryFolder folder;
  // The second shard is larger than the pieces that are read.
  const std::string first = file_of("z", 1.0f), second = file_of("a", 2.0f, 700'000);
  const std::string stem = "diffusion_pytorch_model";
  write_file_atomic(folder.path / (stem + "-00001-of-00002.safetensors"), first);
  write_file_atomic(folder.path / (stem + "-00002-of-00002.safetensors"), second);
  write_file_atomic(folder.path / (stem + ".safetensors.index.json"),
                    R"({"weight_map": {"a": "diffusion_pytorch_model-00002-of-00002.safetensors",
                                       "z": "diffusion_pytorch_model-00001-of-00002.safetensors"}})");
  const std::string all = first + second;
  EXPECT_EQ(model_hash(folder.path), hash_hex(hash_bytes(std::as_bytes(std::span(all)))));
}

TEST(ModelHash, ChangesWithAnyWeight) {
  const TemporaryFolder folder;
  const auto path = folder.path / "diffusion_pytorch_model.safetensors";
  write_file_atomic(path, file_of("w", 1.0f));
  const std::string before = model_hash(folder.path);
  EXPECT_EQ(before.size(), 16u);
  EXPECT_EQ(model_hash(folder.path), before);
  write_file_atomic(path, file_of("w", 1.0000001f));
  EXPECT_NE(model_hash(folder.path), before);
}

TEST(ModelHash, NoWeightsIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THROW(model_hash(folder.path), Error);
}

}  // namespace
}  // namespace tulle
