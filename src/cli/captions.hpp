// Captions from a file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tulle::cli {

// The file that was named, or the model folder's own where none was (empty).
std::filesystem::path captions_path(const std::string& model, const std::string& named);

// One caption a line: as text, or in a .jsonl as the key "caption". Empty lines do not count. Throws Error(kIo) for a
// file that cannot be read, Error(kBadFile) naming the line.
std::vector<std::string> read_captions(const std::filesystem::path& path);

}  // namespace tulle::cli
