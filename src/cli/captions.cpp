#include "cli/captions.hpp"

#include <algorithm>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/json.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

std::string caption_of(const std::string& line, bool json, const std::string& where) {
  if (!json) return line;
  const Json object = parse_json(line, where).value();
  if (!object.is_object() || !object.contains("caption") || !object["caption"].is_string()) {
    fail(ErrorCode::kBadFile, "{}: a line must be an object with a text \"caption\"", where);
  }
  return object["caption"].get<std::string>();
}

}  // namespace

fs::path captions_path(const std::string& model, const std::string& named) {
  return named.empty() ? fs::path(model) / "heldout.jsonl" : fs::path(named);
}

std::vector<std::string> read_captions(const fs::path& path) {
  const std::string text = read_file(path, std::size_t{1} << 26);
  const bool json = path.extension() == ".jsonl";
  std::vector<std::string> captions;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size(); ++line_number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    at = end + 1;
    if (line.empty()) continue;
    captions.push_back(caption_of(line, json, fmt::format("{}:{}", path.string(), line_number + 1)));
  }
  return captions;
}

}  // namespace tulle::cli
