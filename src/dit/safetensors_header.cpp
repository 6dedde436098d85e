// Header of a safetensors file: JSON read by events, so that no document tree is built and nesting has no depth.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include "base/checked.hpp"
#include "base/json.hpp"
#include "dit/safetensors.hpp"

namespace tulle {
namespace {

constexpr std::array kTypes = {
    SafetensorsType{"BOOL", 8},        SafetensorsType{"F4", 4},          SafetensorsType{"F6_E2M3", 6},
    SafetensorsType{"F6_E3M2", 6},     SafetensorsType{"U8", 8},          SafetensorsType{"I8", 8},
    SafetensorsType{"F8_E5M2", 8},     SafetensorsType{"F8_E4M3", 8},     SafetensorsType{"F8_E8M0", 8},
    SafetensorsType{"F8_E4M3FNUZ", 8}, SafetensorsType{"F8_E5M2FNUZ", 8}, SafetensorsType{"I16", 16},
    SafetensorsType{"U16", 16},        SafetensorsType{"F16", 16},        SafetensorsType{"BF16", 16},
    SafetensorsType{"I32", 32},        SafetensorsType{"U32", 32},        SafetensorsType{"F32", 32},
    SafetensorsType{"F64", 64},        SafetensorsType{"I64", 64},        SafetensorsType{"U64", 64},
    SafetensorsType{"C64", 64},
};

constexpr std::size_t kMaxDimensions = 64;
constexpr std::size_t kShownName = 120;

// Names come from the file: cut for messages.
std::string shown(const std::string& name) {
  return name.size() <= kShownName ? name : name.substr(0, kShownName) + "...";
}

const SafetensorsType* find_type(std::string_view name) {
  const auto it = std::find_if(kTypes.begin(), kTypes.end(), [&](const SafetensorsType& t) { return t.name == name; });
  return it == kTypes.end() ? nullptr : &*it;
}

// Receives nlohmann's parse events. Returning false stops the parse; `problem` then says why.
class HeaderReader {
 public:
  SafetensorsHeader header;
  std::string problem;

  bool null() { return refuse("null where none may be"); }
  bool boolean(bool) { return refuse("a boolean where none may be"); }
  bool number_integer(std::int64_t) { return refuse("a negative number"); }
  bool number_float(double, const std::string&) { return refuse("a number that is no integer, or too large"); }
  bool binary(std::vector<std::uint8_t>&) { return refuse("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (state_ == State::kShape) return add_extent(value);
    if (state_ == State::kOffsets) return add_offset(value);
    return refuse("a number where none may be");
  }

  bool string(std::string& value) {
    if (state_ == State::kMetadata) {
      header.metadata.emplace(key_, std::move(value));
      return true;
    }
    if (state_ != State::kTensor || key_ != "dtype") return refuse("a string where none may be");
    current().type = find_type(value);
    return current().type != nullptr || refuse(fmt::format("unknown dtype \"{}\"", shown(value)));
  }

  bool start_object(std::size_t) {
    if (state_ == State::kStart) return enter(State::kTop);
    if (state_ != State::kTop) return refuse("an object where none may be");
    if (key_ == "__metadata__") return enter(State::kMetadata);
    header.tensors.push_back({key_, nullptr, {}, 0, 0});
    offsets_ = 0;
    return enter(State::kTensor);
  }

  bool key(std::string& value) {
    std::set<std::string>& seen = state_ == State::kTop ? top_keys_ : inner_keys_;
    if (!seen.insert(value).second) return refuse(fmt::format("key \"{}\" stands twice", shown(value)));
    key_ = std::move(value);
    if (state_ != State::kTensor || key_ == "dtype" || key_ == "shape" || key_ == "data_offsets") return true;
    return refuse(fmt::format("unknown key \"{}\"", shown(key_)));
  }

  bool end_object() {
    if (state_ == State::kTop) return enter(State::kEnd);
    const bool complete = state_ == State::kMetadata || inner_keys_.size() == 3;
    if (!complete) return refuse("dtype, shape and data_offsets are needed");
    inner_keys_.clear();
    return enter(State::kTop);
  }

  bool start_array(std::size_t) {
    if (state_ == State::kTensor && key_ == "shape") return enter(State::kShape);
    if (state_ == State::kTensor && key_ == "data_offsets") return enter(State::kOffsets);
    return refuse("a list where none may be");
  }

  bool end_array() {
    if (state_ == State::kOffsets && offsets_ != 2) return refuse("data_offsets needs two numbers");
    return enter(State::kTensor);
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    problem = fmt::format("the header is not valid JSON in UTF-8 (byte {})", position);
    return false;
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  SafetensorsTensor& current() { return header.tensors.back(); }

  bool enter(State state) {
    state_ = state;
    return true;
  }

  bool refuse(const std::string& what) {
    const bool in_tensor = state_ == State::kTensor || state_ == State::kShape || state_ == State::kOffsets;
    problem = in_tensor ? fmt::format("tensor \"{}\": {}", shown(current().name), what) : "header: " + what;
    return false;
  }

  bool add_extent(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return refuse("an extent is too large");
    if (current().shape.size() >= kMaxDimensions) return refuse("too many dimensions");
    current().shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool add_offset(std::uint64_t value) {
    if (offsets_ >= 2) return refuse("data_offsets needs two numbers");
    (offsets_ == 0 ? current().begin : current().end) = value;
    ++offsets_;
    return true;
  }

  State state_ = State::kStart;
  std::string key_;
  std::set<std::string> top_keys_, inner_keys_;
  int offsets_ = 0;
};

// Bytes that shape and type need, or nothing on overflow or when the bits do not fill whole bytes.
std::optional<std::uint64_t> needed_bytes(const SafetensorsTensor& tensor) {
  std::optional<std::int64_t> bits = tensor.type->bits;
  for (std::int64_t extent : tensor.shape) {
    bits = checked_mul(*bits, extent);
    if (!bits) return std::nullopt;
  }
  if (*bits % 8 != 0) return std::nullopt;
  return static_cast<std::uint64_t>(*bits / 8);
}

// What is wrong with the places of the tensors (sorted by offset), or "".
std::string layout_problem(const std::vector<SafetensorsTensor>& tensors, std::uint64_t data_bytes) {
  std::uint64_t at = 0;
  for (const SafetensorsTensor& t : tensors) {
    if (t.begin > t.end) return fmt::format("tensor \"{}\": it ends before it begins", shown(t.name));
    if (t.begin != at) {
      return fmt::format("tensor \"{}\": {} before it at byte {}", shown(t.name),
                         t.begin > at ? "a hole" : "an overlap", std::min(at, t.begin));
    }
    const auto need = needed_bytes(t);
    if (!need || *need != t.bytes()) {
      return fmt::format("tensor \"{}\": {} of {} do not fill its {} bytes", shown(t.name), t.type->name,
                         shape_text(t.shape), t.bytes());
    }
    at = t.end;
  }
  if (at != data_bytes) return fmt::format("the tensors cover {} bytes but the file holds {}", at, data_bytes);
  return "";
}

bool by_offset(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
}

}  // namespace

std::span<const SafetensorsType> safetensors_types() { return kTypes; }

std::int64_t SafetensorsTensor::elements() const {
  std::int64_t n = 1;
  for (std::int64_t extent : shape) n *= extent;  // bounded by the header check
  return n;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (std::int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

Expected<std::uint64_t> parse_safetensors_length(std::span<const std::byte, 8> prefix, std::uint64_t file_bytes,
                                                 const std::string& where) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = (length << 8) | std::to_integer<std::uint64_t>(prefix[i]);
  if (length > kSafetensorsHeaderLimit) {
    return make_error(ErrorCode::kBadFile,
                      "{}: a header of {} bytes is longer than the {} allowed; is this a safetensors file?", where,
                      length, kSafetensorsHeaderLimit);
  }
  if (file_bytes < 8 || length > file_bytes - 8) {
    return make_error(ErrorCode::kBadFile, "{}: the header needs {} bytes but the file has {}; it is truncated", where,
                      length, file_bytes);
  }
  return length;
}

Expected<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                     const std::string& where) {
  const auto bad = [&](const std::string& what) { return make_error(ErrorCode::kBadFile, "{}: {}", where, what); };
  if (json.empty() || json.front() != '{') return bad("the header does not begin with '{'");
  // The parser takes a zero byte for the end of the text and would not look behind it.
  if (json.find('\0') != std::string_view::npos) return bad("the header holds a zero byte");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) return bad(reader.problem);
  auto& tensors = reader.header.tensors;
  std::stable_sort(tensors.begin(), tensors.end(), by_offset);
  if (const std::string problem = layout_problem(tensors, data_bytes); !problem.empty()) return bad(problem);
  reader.header.data_begin = 8 + json.size();
  return std::move(reader.header);
}

std::string serialize_safetensors(std::span<const SafetensorsEntry> entries,
                                  const std::map<std::string, std::string>& metadata) {
  OrderedJson json = OrderedJson::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::string data;
  for (const SafetensorsEntry& e : entries) {
    const SafetensorsTensor tensor{e.name, find_type(e.type), e.shape, data.size(), data.size() + e.bytes.size()};
    require(tensor.type != nullptr, "tensor \"{}\": unknown dtype \"{}\"", e.name, e.type);
    require(!json.contains(e.name) && e.name != "__metadata__", "tensor \"{}\" stands twice", e.name);
    require(needed_bytes(tensor) == tensor.bytes(), "tensor \"{}\": {} of {} do not fill {} bytes", e.name, e.type,
            shape_text(e.shape), e.bytes.size());
    json[e.name] = {{"dtype", e.type}, {"shape", e.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
    data.append(reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size());
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return file + header + data;
}

}  // namespace tulle
