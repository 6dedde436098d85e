// Scorers: how much each key block matters to each query block, estimated from pooled tokens or from distance.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "select/clusters.hpp"
#include "select/pool.hpp"

namespace tulle {

// Pooled keys are packed in panels of this many sub-blocks, so that one panel fills whole SIMD vectors.
constexpr std::int64_t kPanel = 16;

// Where a video block stands: the mean grid position of its tokens, and the share of them that lies in frame 0.
struct BlockPlace {
  float frame = 0, y = 0, x = 0, first_frame = 0;
};

// All video blocks in memory order.
struct BlockPlaces {
  TokenGrid grid;
  std::vector<BlockPlace> q, k;
};
// O(tokens): make it once for a shape. Block sizes are in tokens. Throws Error(kInvalidArgument) unless both are >= 1.
BlockPlaces place_blocks(const TokenOrder& order, std::int32_t block_q, std::int32_t block_k);

// What a scorer sees of one sample and one head. Sub-blocks past the last one fill the panels up, with weight 0. Parts
// that a scorer does not ask for are empty or null.
struct ScoreInput {
  std::int64_t head_dim = 0;
  float scale = 0;                         // of q.k, 1 / sqrt(head_dim)
  const float* q = nullptr;                // [video query sub-blocks, head_dim]
  std::span<const std::int32_t> q_counts;  // [video query sub-blocks] tokens in each
  const float* k = nullptr;                // [panels, head_dim, kPanel] all key sub-blocks, text included
  std::span<const float> k_weights;        // [panels * kPanel] tokens seen in each; 0: not there, must not count
  std::int64_t k_video = 0;                // first video sub-block among the key sub-blocks
  std::int64_t k_video_subs = 0;
  std::int64_t q_per_block = 0, k_per_block = 0;  // sub-blocks of a full block

  const float* k_variances = nullptr;   // as k: variance of each channel inside a key sub-block
  std::span<const float> q_likeness;    // [video query sub-blocks] mean cosine of tokens to their mean
  std::span<const float> k_likeness;    // [video key sub-blocks]
  const BlockPlaces* places = nullptr;  // video blocks on the grid
  const HeadClusters* clusters = nullptr;

  std::int64_t q_blocks() const;  // video query blocks
  std::int64_t k_blocks() const;  // video key blocks
};

// How the tokens of one side come before a scorer.
enum class Pooling : std::uint8_t {
  kNone,             // not at all
  kToken,            // one by one
  kSubBlock,         // means over the policy's sub_block
  kBlock,            // means over whole blocks
  kRepresentatives,  // up to 4 tokens of each block, evenly spaced, each for a quarter of the block
};

// What a scorer asks for beside q and k.
enum class ScoreExtra : std::uint8_t { kNone, kVariances, kLikeness, kPlaces, kClusters };

// `score` fills scores [q_end - q_begin, k_blocks()] for video query blocks [q_begin, q_end). Larger means more worth
// keeping. Scores are in [0, 1], or kAlwaysKept (chooser.hpp); a scorer writes NaN when its input is not finite. Those
// that estimate softmax mass (`is_mass`) can be cut by share, as top_p does; of the others only the order within a row
// means something. It must be pure: rows must not depend on q_begin, q_end or the thread.
struct Scorer {
  const char* name;
  const char* help;
  std::int64_t max_sub_blocks;  // of one block
  void (*score)(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);
  Pooling q_pooling = Pooling::kSubBlock, k_pooling = Pooling::kSubBlock;
  ScoreExtra extra = ScoreExtra::kNone;
  bool is_mass = true;

  bool needs_tokens() const { return q_pooling != Pooling::kNone; }  // false: q and k are not read
  bool needs_places() const { return extra == ScoreExtra::kPlaces; }
};

std::span<const Scorer> scorers();
// Throws Error(kInvalidArgument) that lists the scorers.
const Scorer& find_scorer(std::string_view name);

// DFSAttn's block score (Hu et al., 2026): softmax over all pooled keys, each weighted by its token count, summed over
// the key sub-blocks of a block and averaged over the query tokens of a block. Scores of a row and of the text sum
// to 1. Multiplies and adds are kept apart and sums have a fixed order, so all CPUs give the same bits. As scorer
// "query_mass" its queries are single tokens, as in PARK (2026): each query row is normalised by itself. With
// sub-blocks of one token on both sides it is the true softmax mass of a block.
void score_pooled_softmax(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);

// The same with scale^2 / 2 * sum_c q_c^2 var_c added to each logit, var_c the variance of channel c inside the key
// sub-block: the second-order term of the log of a mean of exponentials, channels taken as uncorrelated. The key side
// of PARK's expansion (2026).
void score_second_order(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);

// SubBlock's form (SGLang, 2026): L_uv = log sum over all pairs of sub-blocks (i of u, j of v) of
// n_i * m_j * exp(scale * q_i . k_j), n and m the tokens of each; the score is exp(L_uv - max_v L_uv), 0 where that is
// below the smallest normal number. No query row is normalised: rows with large logits lead their block. The same bits
// on all CPUs.
void score_sub_block_lse(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);

// Zhang et al., "SpargeAttention" (2025): pooled softmax between whole blocks, guarded by how alike the tokens of a
// block are. A key block whose likeness (mean cosine of its tokens to their mean) is below kAlike stands outside the
// softmax and scores kAlwaysKept. A query block below kAlike gives that score to all key blocks: with top_p its row is
// dense; top_k, with as many blocks as the density says, then takes some by the hash.
void score_sparge(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);
constexpr float kAlike = 0.5f;

// A fixed-block form of SVG2 (Yang et al., 2025): see clusters.hpp.
void score_clusters(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);

// A box around the query block that grows in the proportions of the grid, as in Sliding Tile Attention (Zhang et al.,
// 2025). With f, y, x the distances of the block centres over frames, height and width of the grid:
// score = 1 / (1 + max(f, y, x) + (f + y + x) / 16). The last term only orders the blocks of one shell.
void score_window(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);

// Li et al., "Radial Attention" (2025): a spatial window that halves as the frame distance doubles, with the first
// frame as a sink. A pair of blocks enters when the window is w = (1 + r) * 2^floor(log2(max(1, f))) wide, r the larger
// of the distances of their centres in rows and columns, f that in frames; key blocks with a share s of their tokens in
// frame 0 enter at min(w, 2 / s). score = 1 / w, so what is kept at any density is one window.
void score_radial(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);

// Keys of one (sample, head) as ScoreInput wants them.
struct KeyPanels {
  std::vector<float> values;     // [panels, head_dim, kPanel]
  std::vector<float> weights;    // [panels * kPanel]
  std::vector<float> variances;  // as values, where the keys have them
  std::vector<float> likeness;   // [sub-blocks], where the keys have it
};
KeyPanels pack_keys(const PooledTokens& keys, std::int64_t b, std::int64_t head);

// Joins queries and packed keys; the result refers to both. block_q and block_k are in tokens and are multiples of the
// sub-blocks of queries and keys. `places` and `clusters` are left out; prepare_scores gives them.
ScoreInput make_score_input(const PooledTokens& queries, const KeyPanels& keys, const BlockPartition& key_subs,
                            std::int64_t b, std::int64_t head, std::int32_t block_q, std::int32_t block_k);

struct ScoreBlocks {
  Sequence sequence;
  std::int32_t block_q = 64, block_k = 64, sub_block = 16;  // tokens
};

// Everything that a scorer needs of one call.
struct ScoreData {
  ScoreBlocks blocks;
  std::int64_t heads = 0;
  PooledTokens queries;
  BlockPartition key_subs;
  std::vector<KeyPanels> keys;         // [batch * heads], for all others that read tokens
  std::vector<HeadClusters> clusters;  // [batch * heads], for a scorer that asks
  const BlockPlaces* places = nullptr;

  // Refers to this and to the places.
  ScoreInput input(std::int64_t b, std::int64_t head) const;
};

// Pools and packs q and k [batch, tokens, heads, head_dim] as the scorer asks; a scorer without needs_tokens() reads
// neither. `places` is for a scorer that needs_places() (else null) and must outlive the result. Memory: scorers with
// Pooling::kToken copy that side in f32. Throws Error(kInvalidArgument) where places are missing or of another shape,
// and as pool_tokens does.
ScoreData prepare_scores(const Scorer& scorer, const ScoreBlocks& blocks, const BlockPlaces* places, ConstTensorView q,
                         ConstTensorView k, HiddenTokens hidden_keys, const Threads& threads);

}  // namespace tulle
