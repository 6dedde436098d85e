#include "dit/wan_names.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace tulle {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;  // diffusers, official

constexpr std::array kOutside = {
    Pair{"condition_embedder.time_embedder.linear_1.", "time_embedding.0."},
    Pair{"condition_embedder.time_embedder.linear_2.", "time_embedding.2."},
    Pair{"condition_embedder.time_proj.", "time_projection.1."},
    Pair{"condition_embedder.text_embedder.linear_1.", "text_embedding.0."},
    Pair{"condition_embedder.text_embedder.linear_2.", "text_embedding.2."},
    Pair{"proj_out.", "head.head."},
    Pair{"scale_shift_table", "head.modulation"},
};

// Behind "blocks.N.".
constexpr std::array kInBlock = {
    Pair{"attn1.to_q.", "self_attn.q."},
    Pair{"attn1.to_k.", "self_attn.k."},
    Pair{"attn1.to_v.", "self_attn.v."},
    Pair{"attn1.to_out.0.", "self_attn.o."},
    Pair{"attn1.norm_q.", "self_attn.norm_q."},
    Pair{"attn1.norm_k.", "self_attn.norm_k."},
    Pair{"attn2.to_q.", "cross_attn.q."},
    Pair{"attn2.to_k.", "cross_attn.k."},
    Pair{"attn2.to_v.", "cross_attn.v."},
    Pair{"attn2.to_out.0.", "cross_attn.o."},
    Pair{"attn2.norm_q.", "cross_attn.norm_q."},
    Pair{"attn2.norm_k.", "cross_attn.norm_k."},
    Pair{"ffn.net.0.proj.", "ffn.0."},
    Pair{"ffn.net.2.", "ffn.2."},
    Pair{"norm2.", "norm3."},
    Pair{"scale_shift_table", "modulation"},
};

template <std::size_t N>
std::string translate(std::string_view name, const std::array<Pair, N>& table) {
  for (const auto& [diffusers, official] : table) {
    if (name.substr(0, diffusers.size()) == diffusers) {
      return std::string(official) + std::string(name.substr(diffusers.size()));
    }
  }
  return std::string(name);
}

}  // namespace

std::string official_wan_name(const std::string& name) {
  constexpr std::string_view prefix = "blocks.";
  if (name.compare(0, prefix.size(), prefix) != 0) return translate(name, kOutside);
  const auto dot = name.find('.', prefix.size());
  if (dot == std::string::npos) return name;
  return name.substr(0, dot + 1) + translate(std::string_view(name).substr(dot + 1), kInBlock);
}

}  // namespace tulle
