#include <gtest/gtest.h>

#include <random>

#include "base/file.hpp"
#include "dit/safetensors.hpp"
#include "dit/temporary.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;

SafetensorsEntry entry(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
  return {name, "F32", std::move(shape), std::as_bytes(std::span(values))};
}

// Two objects of three words; "view" gives "left" and "near" another meaning.
constexpr const char* kVocabulary = R"({
  "format": 1,
  "slots": ["o0.colour", "o0.shape", "o0.motion", "o1.colour", "o1.shape", "o1.motion", "view", "light"],
  "objects": 2, "object_categories": ["colour", "shape", "motion"],
  "scene_slots": {"view": 6, "light": 7},
  "words": [
    {"row": 0, "word": "red", "category": "colour"}, {"row": 1, "word": "blue", "category": "colour"},
    {"row": 2, "word": "circle", "category": "shape"}, {"row": 3, "word": "left", "category": "motion"},
    {"row": 4, "word": "left", "category": "view"}, {"row": 5, "word": "near", "category": "view"},
    {"row": 6, "word": "dim", "category": "light"}],
  "stop_words": ["a", "and", "pans"], "context_words": {"view": "view"}
})";

class Prompt : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 7 * 4; ++i) words.push_back(static_cast<float>(i));
    for (int i = 0; i < 8 * 4; ++i) places.push_back(static_cast<float>(100 * i));
    write(kVocabulary);
  }
  void write(const std::string& vocabulary) {
    write_file_atomic(folder.path / "vocabulary.json", vocabulary);
    write_file_atomic(folder.path / "text.safetensors",
                      serialize_safetensors(std::vector{entry("word_embedding.weight", {7, 4}, words),
                                                        entry("slot_embedding.weight", {8, 4}, places)}));
  }
  std::string replaced(const std::string& from, const std::string& to) {
    std::string text = kVocabulary;
    text.replace(text.find(from), from.size(), to);
    return text;
  }
  std::string refusal(const std::string& prompt) {
    try {
      PromptEncoder::load(folder.path).parse(prompt);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.what();
    }
    return "";
  }
  using Slots = std::vector<std::string>;

  TemporaryFolder folder;
  std::vector<float> words, places;
};

TEST_F(Prompt, FillsSlotsByCategoryAndContext) {
  const PromptEncoder encoder = PromptEncoder::load(folder.path);
  EXPECT_EQ(encoder.slots(), 8);
  EXPECT_EQ(encoder.text_dim(), 4);
  EXPECT_EQ(encoder.parse("A red circle left, and a BLUE circle; view pans left: dim"),
            (Slots{"red", "circle", "left", "blue", "circle", "", "left", "dim"}));
  // A filled category begins the next object, even without a motion word.
  EXPECT_EQ(encoder.parse("red circle blue"), (Slots{"red", "circle", "", "blue", "", "", "", ""}));
  // The motion word ends a phrase.
  EXPECT_EQ(encoder.parse("left red"), (Slots{"", "", "left", "red", "", "", "", ""}));
  EXPECT_EQ(encoder.parse("view near left"), (Slots{"", "", "left", "", "", "", "near", ""}));
  EXPECT_EQ(encoder.parse(""), Slots(8));
}

TEST_F(Prompt, EncodesWordPlusSlotAndZerosElsewhere) {
  const auto text = PromptEncoder::load(folder.path).encode("blue view near");
  ASSERT_EQ(text.size(), 32u);
  EXPECT_EQ(std::vector<float>(text.begin(), text.begin() + 4), (std::vector<float>{4, 105, 206, 307}));
  EXPECT_EQ(text[6 * 4], 20 + 2400);
  EXPECT_EQ(std::vector<float>(text.begin() + 4, text.begin() + 24), std::vector<float>(20));
  EXPECT_EQ(PromptEncoder::load(folder.path).encode(" ,"), std::vector<float>(32));
}

TEST_F(Prompt, RefusesWordsItCannotPlace) {
  EXPECT_NE(refusal("a gren circle").find("\"gren\" is not in the vocabulary"), std::string::npos);
  EXPECT_NE(refusal("a circl").find("did you mean \"circle\"?"), std::string::npos);
  EXPECT_NE(refusal("near").find("not in the vocabulary"), std::string::npos);  // a word of the context only
  EXPECT_NE(refusal("dim dim").find("a second time"), std::string::npos);
  EXPECT_NE(refusal("red blue red").find("an object too many"), std::string::npos);
}

TEST_F(Prompt, RefusesBadVocabularies) {
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& says) {
    write(replaced(from, to));
    try {
      PromptEncoder::load(folder.path);
      ADD_FAILURE() << to;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kBadFile);
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
    }
  };
  refused("\"format\": 1", "\"format\": 2", "format 1");
  refused("\"objects\": 2", "\"objcts\": 2", "did you mean \"objects\"?");
  refused("\"objects\": 2", "\"objects\": 3", "do not fit");
  refused("\"objects\": 2", "\"objects\": 4611686018427387904", "do not fit");
  refused("\"light\": 7", "\"light\": 8", "does not exist");
  refused("\"row\": 6", "\"row\": 7", "has row 7");
  refused("\"word\": \"blue\"", "\"word\": \"red\"", "stands twice");
  refused("\"category\": \"light\"", "\"category\": \"sound\"", "unknown category");
  refused("{\"row\": 6, \"word\": \"dim\", \"category\": \"light\"}", "7", "\"row\" is missing");
  refused(
      ", {\"row\": 5, \"word\": \"near\", \"category\": \"view\"},\n    {\"row\": 6, \"word\": \"dim\", \"category\": "
      "\"light\"}",
      "", "word_embedding");
}

TEST(PromptOfTheShippedModel, CaptionsFillTheirSlots) {
  const fs::path folder = fs::path(TULLE_SOURCE_DIR) / "models/tiny";
  const PromptEncoder encoder = PromptEncoder::load(folder);
  const auto slots = encoder.parse(
      "a large red striped circle moving left and a small blue plain square still crossing over grey waves, camera "
      "pans "
      "right, light dimming");
  const std::vector<std::string> want{"large", "red",    "striped", "circle", "left",    "small",   "blue",
                                      "plain", "square", "still",   "",       "",        "",        "",
                                      "",      "grey",   "waves",   "right",  "dimming", "crossing"};
  EXPECT_EQ(slots, want);
}

class CodecFile : public testing::Test {
 protected:
  void write(const std::vector<float>& mean, const std::vector<float>& basis, const std::vector<float>& scale) {
    const auto c = static_cast<std::int64_t>(scale.size());
    write_file_atomic(
        folder.path / "codec.safetensors",
        serialize_safetensors(std::vector{entry("mean", {48}, mean),
                                          entry("basis", {c, static_cast<std::int64_t>(basis.size()) / c}, basis),
                                          entry("scale", {c}, scale)}));
  }
  TemporaryFolder folder;
};

TEST_F(CodecFile, FullBasisRestoresEveryPixel) {
  std::vector<float> mean(48, 0.4f), basis(48 * 48), scale(48);
  for (int i = 0; i < 48; ++i)
    basis[i * 48 + (i * 7) % 48] = i % 2 == 0 ? 1.f : -1.f, scale[i] = 0.5f + 0.1f * static_cast<float>(i);
  write(mean, basis, scale);
  const Codec codec = Codec::load(folder.path);
  EXPECT_EQ(codec.channels(), 48);
  std::mt19937 random(1);
  std::vector<float> rgb(2 * 8 * 12 * 3), back(rgb.size()), latents(48 * 2 * 2 * 3);
  for (float& v : rgb) v = static_cast<float>(random() % 1000) / 999.f;
  codec.encode(rgb, 2, 2, 3, latents);
  codec.decode(latents, 2, 2, 3, back);
  for (std::size_t i = 0; i < rgb.size(); ++i) EXPECT_NEAR(back[i], rgb[i], 1e-5);
  EXPECT_THROW(codec.decode(latents, 2, 2, 2, back), Error);
}

// Channel (dy * 4 + dx) * 3 + c of position (f, y, x) is colour c of pixel (4 y + dy, 4 x + dx).
TEST_F(CodecFile, PlacesPixelsAsDocumented) {
  std::vector<float> mean(48), basis(48), scale{2};
  basis[(2 * 4 + 3) * 3 + 1] = 1;
  write(mean, basis, scale);
  const Codec codec = Codec::load(folder.path);
  const std::vector<float> latents{0, 0, 0, 0, 0, 0, 0.25f, 0};  // frame 1, y 1, x 0 of 2 x 2 x 2
  std::vector<float> rgb(2 * 8 * 8 * 3);
  codec.decode(latents, 2, 2, 2, rgb);
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    const std::size_t at = ((1 * 8 + 4 + 2) * 8 + 3) * 3 + 1;
    EXPECT_EQ(rgb[i], i == at ? 0.5f : 0.f) << i;
  }
}

TEST_F(CodecFile, RefusesBadTables) {
  write(std::vector<float>(48), std::vector<float>(40), {1});
  EXPECT_THROW(Codec::load(folder.path), Error);
  write(std::vector<float>(48), std::vector<float>(48), {0});
  EXPECT_THROW(Codec::load(folder.path), Error);
  EXPECT_THROW(Codec::load(folder.path / "absent"), Error);
}

}  // namespace
}  // namespace tulle
