// The word encoder of models/tiny. The vocabulary file holds everything that depends on the model's language:
// which words fill which slots, which are skipped, and after which words another meaning holds ("camera left").
#include <algorithm>
#include <map>
#include <set>

#include "base/file.hpp"
#include "base/json.hpp"
#include "dit/safetensors.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kMaxSlots = 4096, kMaxRows = 1 << 20, kMaxDim = 1 << 16;

struct Meaning {
  std::string category;
  std::int64_t row = 0;
};

struct Vocabulary {
  std::int64_t slots = 0, objects = 0, rows = 0;
  std::vector<std::string> object_categories;
  std::map<std::string, std::int64_t> scene_slots;             // category -> slot
  std::map<std::string, Meaning> words;                        // outside any context
  std::map<std::string, std::map<std::string, Meaning>> told;  // category -> word, after a context word
  std::map<std::string, std::string> contexts;                 // context word -> category
  std::set<std::string> skipped;
  std::vector<std::string> word_of_row;
};

constexpr std::string_view kKeys[] = {"format",      "slots", "objects",    "object_categories",
                                      "scene_slots", "words", "stop_words", "context_words"};

void add_word(Vocabulary& v, const Json& entry, const std::string& where) {
  const auto row = json_need<std::int64_t>(entry, "row", where);
  const auto word = json_need<std::string>(entry, "word", where);
  const auto category = json_need<std::string>(entry, "category", where);
  if (row != v.rows || row >= kMaxRows)
    fail(ErrorCode::kBadFile, "{}: word \"{}\" has row {}, not {}", where, word, row, v.rows);
  const bool placed = v.scene_slots.count(category) != 0 ||
                      std::count(v.object_categories.begin(), v.object_categories.end(), category) != 0;
  if (!placed) fail(ErrorCode::kBadFile, "{}: word \"{}\" has the unknown category \"{}\"", where, word, category);
  const bool hidden =
      std::any_of(v.contexts.begin(), v.contexts.end(), [&](const auto& c) { return c.second == category; });
  auto& table = hidden ? v.told[category] : v.words;
  if (!table.emplace(word, Meaning{category, row}).second) {
    fail(ErrorCode::kBadFile, "{}: word \"{}\" stands twice", where, word);
  }
  v.word_of_row.push_back(word);
  ++v.rows;
}

Vocabulary parse_vocabulary(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where).value();
  refuse_unknown_keys(json, kKeys, where);
  if (json_need<std::int64_t>(json, "format", where) != 1)
    fail(ErrorCode::kBadFile, "{}: only format 1 is known", where);
  Vocabulary v;
  v.slots = static_cast<std::int64_t>(json_need<std::vector<std::string>>(json, "slots", where).size());
  v.objects = json_need<std::int64_t>(json, "objects", where);
  v.object_categories = json_need<std::vector<std::string>>(json, "object_categories", where);
  v.scene_slots = json_need<std::map<std::string, std::int64_t>>(json, "scene_slots", where);
  v.contexts = json_need<std::map<std::string, std::string>>(json, "context_words", where);
  const auto skipped = json_need<std::vector<std::string>>(json, "stop_words", where);
  v.skipped.insert(skipped.begin(), skipped.end());
  const auto per_object = static_cast<std::int64_t>(v.object_categories.size());
  const bool sane = v.slots >= 1 && v.slots <= kMaxSlots && v.objects >= 0 && v.objects <= v.slots &&
                    per_object <= v.slots && v.objects * per_object <= v.slots;
  if (!sane)
    fail(ErrorCode::kBadFile, "{}: {} objects of {} words do not fit {} slots", where, v.objects, per_object, v.slots);
  for (const auto& [category, slot] : v.scene_slots) {
    if (slot < 0 || slot >= v.slots)
      fail(ErrorCode::kBadFile, "{}: slot {} of \"{}\" does not exist", where, slot, category);
  }
  const auto it = json.find("words");
  if (it == json.end() || !it->is_array()) fail(ErrorCode::kBadFile, "{}: a list \"words\" is needed", where);
  for (const Json& entry : *it) add_word(v, entry, where);
  return v;
}

// Lower-case runs of letters.
std::vector<std::string> split_words(const std::string& prompt) {
  std::vector<std::string> words;
  bool inside = false;
  for (char c : prompt) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool letter = c >= 'a' && c <= 'z';
    if (letter && !inside) words.emplace_back();
    if (letter) words.back() += c;
    inside = letter;
  }
  return words;
}

// Fills slots word by word.
class SlotFiller {
 public:
  explicit SlotFiller(const Vocabulary& v) : v_(v), rows(static_cast<std::size_t>(v.slots), -1) {}

  void take(const std::string& word) {
    if (const Meaning* told = after_context(word)) {
      context_.clear();
      return place(word, *told);
    }
    if (const auto it = v_.contexts.find(word); it != v_.contexts.end()) {
      context_ = it->second;
      return;
    }
    if (v_.skipped.count(word) != 0) return;
    const auto it = v_.words.find(word);
    if (it == v_.words.end()) refuse(word);
    place(word, it->second);
  }

 private:
  const Meaning* after_context(const std::string& word) const {
    const auto table = v_.told.find(context_);
    if (table == v_.told.end()) return nullptr;
    const auto it = table->second.find(word);
    return it == table->second.end() ? nullptr : &it->second;
  }

  void place(const std::string& word, const Meaning& meaning) {
    if (const auto scene = v_.scene_slots.find(meaning.category); scene != v_.scene_slots.end()) {
      auto& slot = rows[static_cast<std::size_t>(scene->second)];
      require(slot < 0, "the prompt word \"{}\" gives the {} a second time; leave one out", word, meaning.category);
      slot = meaning.row;
      return;
    }
    const auto& categories = v_.object_categories;
    const auto offset = std::find(categories.begin(), categories.end(), meaning.category) - categories.begin();
    const auto per_object = static_cast<std::int64_t>(categories.size());
    const auto slot_of = [&] { return static_cast<std::size_t>(object_ * per_object + offset); };
    if (object_ < v_.objects && rows[slot_of()] >= 0) ++object_;
    require(object_ < v_.objects, "the prompt word \"{}\" begins an object too many; {} are the most", word,
            v_.objects);
    rows[slot_of()] = meaning.row;
    // An object's phrase ends with its last category (the motion word).
    if (offset + 1 == per_object) ++object_;
  }

  [[noreturn]] void refuse(const std::string& word) const {
    std::vector<std::string> known;
    for (const auto& [name, meaning] : v_.words) known.push_back(name);
    const std::string near = nearest_word(word, known);
    std::string some;
    for (const std::string& name : known) some += (some.empty() ? "" : ", ") + name;
    fail(ErrorCode::kInvalidArgument, "the prompt word \"{}\" is not in the vocabulary{}; known words: {}", word,
         near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near), some);
  }

  const Vocabulary& v_;
  std::string context_;
  std::int64_t object_ = 0;

 public:
  std::vector<std::int64_t> rows;  // per slot, -1 when not filled
};

std::vector<std::int64_t> rows_of(const Vocabulary& v, const std::string& prompt) {
  SlotFiller filler(v);
  for (const std::string& word : split_words(prompt)) filler.take(word);
  return filler.rows;
}

}  // namespace

struct PromptEncoder::Impl {
  Vocabulary vocabulary;
  std::int64_t dim = 0;
  Buffer<float> words, slots;  // [rows, dim], [slots, dim]
};

PromptEncoder::PromptEncoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PromptEncoder::~PromptEncoder() = default;
PromptEncoder::PromptEncoder(PromptEncoder&&) noexcept = default;

PromptEncoder PromptEncoder::load(const std::filesystem::path& folder) {
  const auto path = folder / "vocabulary.json";
  auto impl = std::make_unique<Impl>();
  impl->vocabulary = parse_vocabulary(read_file(path, std::size_t{16} << 20), path.string());
  const SafetensorsSet set = SafetensorsSet::open_file(folder / "text.safetensors").value();
  const auto& shape = set.tensor("word_embedding.weight").shape;
  if (shape.size() != 2 || shape[1] < 1 || shape[1] > kMaxDim) {
    fail(ErrorCode::kBadFile, "{} has shape {}; [words, dimension] is needed", set.where("word_embedding.weight"),
         shape_text(shape));
  }
  impl->dim = shape[1];
  const std::int64_t word_shape[] = {impl->vocabulary.rows, impl->dim},
                     slot_shape[] = {impl->vocabulary.slots, impl->dim};
  impl->words = set.read_f32("word_embedding.weight", word_shape);
  impl->slots = set.read_f32("slot_embedding.weight", slot_shape);
  return PromptEncoder(std::move(impl));
}

std::int64_t PromptEncoder::slots() const { return impl_->vocabulary.slots; }
std::int64_t PromptEncoder::text_dim() const { return impl_->dim; }

std::vector<std::string> PromptEncoder::parse(const std::string& prompt) const {
  std::vector<std::string> words;
  for (std::int64_t row : rows_of(impl_->vocabulary, prompt)) {
    words.push_back(row < 0 ? "" : impl_->vocabulary.word_of_row[static_cast<std::size_t>(row)]);
  }
  return words;
}

std::vector<float> PromptEncoder::encode(const std::string& prompt) const {
  const std::vector<std::int64_t> rows = rows_of(impl_->vocabulary, prompt);
  std::vector<float> text(rows.size() * static_cast<std::size_t>(impl_->dim), 0.f);
  for (std::size_t slot = 0; slot < rows.size(); ++slot) {
    if (rows[slot] < 0) continue;
    const float* word = impl_->words.data() + rows[slot] * impl_->dim;
    const float* place = impl_->slots.data() + static_cast<std::int64_t>(slot) * impl_->dim;
    float* out = text.data() + static_cast<std::int64_t>(slot) * impl_->dim;
    for (std::int64_t i = 0; i < impl_->dim; ++i) out[i] = word[i] + place[i];
  }
  return text;
}

}  // namespace tulle
