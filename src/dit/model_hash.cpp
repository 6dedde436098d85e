#include "dit/model_hash.hpp"

#include <fstream>
#include <memory>
#include <new>
#include <vector>

#include "base/fail.hpp"
#include "base/hash.hpp"
#include "dit/safetensors.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tulle {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

void add_file(const std::filesystem::path& path, std::vector<char>& piece, XXH3_state_t& state) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kIo, "cannot open {} to take its checksum", path.string());
  do {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    XXH3_64bits_update(&state, piece.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (!file.eof()) fail(ErrorCode::kIo, "cannot read {} to take its checksum", path.string());
}

}  // namespace

std::string model_hash(const std::filesystem::path& folder) {
  const SafetensorsSet set = SafetensorsSet::open_folder(folder, "diffusion_pytorch_model").value();
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  if (state == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  std::vector<char> piece(kPiece);
  for (const std::filesystem::path& file : set.files()) add_file(file, piece, *state);
  return hash_hex(XXH3_64bits_digest(state.get()));
}

}  // namespace tulle
