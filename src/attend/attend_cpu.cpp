// attend_cpu: packs the keys of a few heads, then works through tiles of query rows, longest first.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "attend/attend_cpu.hpp"
#include "attend/kernel_cpu.hpp"
#include "attend/keys.hpp"
#include "attend/pack.hpp"
#include "attend/shape.hpp"
#include "attend/tail.hpp"
#include "attend/tiles.hpp"
#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

using cpu::KernelShape;
using cpu::Panel;
using cpu::RowGroup;

// Heads whose packed keys fit in here are packed and worked through together; one head is always taken. The last-level
// cache holds about as much, and the allocator hands memory of this size out again without asking the system.
constexpr std::int64_t kPackBudget = std::int64_t{24} << 20;

// Panels left free behind each column of packed V: columns of a power of two of keys would share cache sets.
constexpr std::int64_t kColumnGap = 8;

struct Geometry {
  KernelShape shape;
  std::int64_t panels = 0;         // of one head
  std::int64_t column_panels = 0;  // from one column of packed V to the next
  std::int64_t depth = 0;          // head_dim rounded up as the kernel asks
  std::int64_t out_dim = 0;        // head_dim rounded up to whole columns
  std::int64_t k_bytes = 0;        // packed K of one head
  std::int64_t v_bytes = 0;        // packed V of one head
  std::int64_t wave_heads = 0;     // (sample, head) pairs that are packed together
};

// Of packed q, k and v.
std::int64_t element_bytes(const KernelShape& shape) { return shape.units ? 2 : 4; }

Geometry geometry_of(const AttentionArgs& args) {
  Geometry g;
  g.shape = cpu::kernel_shape(args.q.dtype);
  const std::int64_t width = g.shape.panel_keys, bytes = element_bytes(g.shape);
  g.panels = ceil_div(args.k.tokens(), width);
  g.out_dim = ceil_div(args.q.head_dim(), width) * width;
  g.depth = ceil_div(args.q.head_dim(), g.shape.depth) * g.shape.depth;
  g.k_bytes = g.panels * width * g.depth * bytes;
  g.column_panels = g.shape.units ? g.panels : g.panels + kColumnGap;
  g.v_bytes = g.column_panels * width * g.out_dim * bytes;
  const std::int64_t head_bytes = std::max<std::int64_t>(1, g.k_bytes + g.v_bytes);
  g.wave_heads =
      std::clamp<std::int64_t>(kPackBudget / head_bytes, 1, std::max<std::int64_t>(1, args.q.batch() * args.q.heads()));
  return g;
}

// Query rows [begin, end) of one (sample, head), all of one query block.
struct Work {
  std::int64_t pair = 0, q_block = 0, begin = 0, end = 0, cost = 0;
};

void add_rows(Work work, std::int64_t begin, std::int64_t end, std::vector<Work>& list) {
  const std::int64_t row_cost = work.cost;
  for (; begin < end; begin = work.end) {
    work.begin = begin;
    work.end = std::min(end, begin + cpu::kTileRows);
    work.cost = row_cost * (work.end - work.begin);
    list.push_back(work);
  }
}

// All work of pairs [first, last), the longest first so that threads finish together.
std::vector<Work> list_work(const AttentionArgs& args, std::int64_t first, std::int64_t last) {
  std::vector<Work> list;
  for (std::int64_t pair = first; pair < last; ++pair) {
    const std::int64_t b = pair / args.q.heads(), h = pair % args.q.heads();
    if (args.mask == nullptr) {
      add_rows({pair, 0, 0, 0, args.k.tokens()}, 0, args.q.tokens(), list);
      continue;
    }
    const BlockPartition& blocks = args.mask->q();
    for (std::int64_t i = 0; i < blocks.count(); ++i) {
      add_rows({pair, i, 0, 0, cpu::row_cost(args, b, h, i)}, blocks.begin(i), blocks.end(i), list);
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const Work& a, const Work& b) { return a.cost > b.cost; });
  return list;
}

// Full groups, and small ones where the rest is small.
std::vector<RowGroup> group_rows(std::int64_t rows, const KernelShape& shape) {
  std::vector<RowGroup> groups;
  for (std::int64_t at = 0; at < rows; at += groups.back().rows) {
    const bool small = ceil_div(rows - at, shape.small_rows) * shape.small_rows < shape.group_rows;
    groups.push_back({at, small ? shape.small_rows : shape.group_rows});
  }
  return groups;
}

// What a sparse call does with the keys of blocks that are not kept. Views and masks outlive the call.
struct Beyond {
  const AttentionArgs* tail = nullptr;  // the means as keys of their own, and a mask of which count; null: none
  float tail_log2 = 0;                  // of a mean's weight
  const AttentionArgs* rest = nullptr;  // args, but with the blocks that are not kept; null: they are not computed
  TensorView residual;
};

constexpr std::int64_t kScratchRows = cpu::kTileRows + cpu::kTilePadding;

// Attention of one tile over one set of keys.
struct Part {
  Part(const Geometry& g)
      : out(static_cast<std::size_t>(kScratchRows * g.out_dim)), top(kScratchRows), sum(kScratchRows) {
    panels.reserve(static_cast<std::size_t>(g.panels));
  }
  Buffer<float> out, top, sum;
  std::vector<Panel> panels;
};

// What one thread needs for one tile.
struct Scratch {
  Scratch(const Geometry& g, const Beyond& beyond)
      : q(static_cast<std::size_t>(kScratchRows * g.depth * element_bytes(g.shape))), kept(g) {
    if (beyond.tail != nullptr) tail.emplace(g);
    if (beyond.rest != nullptr) rest.emplace(g);
  }

  Buffer<std::byte> q;
  Part kept;
  std::optional<Part> tail, rest;
};

// Packed K and V of the pairs of one wave.
struct Packed {
  Buffer<std::byte> k, v;
  std::int64_t first_pair = 0;
};

// Asks the memory for tokens [begin, end) of one head: its rows lie far apart, and asking for all of them at once takes
// one wait instead of one a row.
void fetch_rows(const ConstTensorView& view, std::int64_t b, std::int64_t h, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kLine = 64;
  const auto size = static_cast<std::int64_t>(size_of(view.dtype)), bytes = view.head_dim() * size;
  const auto* head = static_cast<const char*>(view.data) + (b * view.stride[0] + h * view.stride[2]) * size;
  for (std::int64_t i = begin; i < std::min(end, view.tokens()); ++i) {
    const char* row = head + i * view.stride[1] * size;
    for (std::int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
  }
}

// One panel of one pair.
void pack_panel(const AttentionArgs& args, const Geometry& g, std::int64_t pair, std::int64_t panel, Packed& packed) {
  const std::int64_t b = pair / args.q.heads(), h = pair % args.q.heads(), at = pair - packed.first_pair;
  const std::int64_t width = g.shape.panel_keys, next = (panel + 1) * width;
  fetch_rows(args.k, b, h, next, next + width);
  fetch_rows(args.v, b, h, next, next + width);
  const std::int64_t bytes = element_bytes(g.shape);
  std::byte* k = packed.k.data() + at * g.k_bytes + panel * width * g.depth * bytes;
  std::byte* v = packed.v.data() + at * g.v_bytes + panel * width * (g.shape.units ? g.out_dim : width) * bytes;
  if (g.shape.units) {
    cpu::pack_k_units({args.k, b, h}, panel, g.depth, reinterpret_cast<std::uint32_t*>(k));
    cpu::pack_v_units({args.v, b, h}, panel, g.out_dim, reinterpret_cast<std::uint32_t*>(v));
  } else {
    cpu::pack_k_panel({args.k, b, h}, panel, width, reinterpret_cast<float*>(k));
    cpu::pack_v_panel({args.v, b, h}, panel, width, g.column_panels * width * width, reinterpret_cast<float*>(v));
  }
}

// A piece of work is a few panels of all pairs, since the heads of a token lie side by side in memory.
void pack_wave(const AttentionArgs& args, const Geometry& g, std::int64_t count, const Threads& threads,
               Packed& packed) {
  constexpr std::int64_t kPanelsATime = 4;
  std::vector<std::vector<std::uint8_t>> needed(static_cast<std::size_t>(count));
  threads.parallel_for(count, [&](std::int64_t i) {
    const std::int64_t pair = packed.first_pair + i;
    needed[static_cast<std::size_t>(i)] =
        cpu::needed_panels(args, pair / args.q.heads(), pair % args.q.heads(), g.shape.panel_keys);
  });
  threads.parallel_ranges(g.panels * count, kPanelsATime * count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t panel = n / count, i = n % count;
      if (needed[static_cast<std::size_t>(i)][static_cast<std::size_t>(panel)] == 0) continue;
      pack_panel(args, g, packed.first_pair + i, panel, packed);
    }
  });
}

// into <- the exact combination of into and part, whose weights are all multiplied by 2^bias.
void merge_part(Part& into, const Part& part, float bias, std::int64_t rows, std::int64_t out_dim) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float &top = into.top.data()[r], &sum = into.sum.data()[r];
    const float other_sum = part.sum.data()[r], other_top = part.top.data()[r] + bias;
    if (other_sum == 0) continue;
    const float most = sum == 0 ? other_top : std::max(top, other_top);
    const float a = sum == 0 ? 0 : std::exp2(top - most), b = std::exp2(other_top - most);
    float* out = into.out.data() + r * out_dim;
    const float* other = part.out.data() + r * out_dim;
    for (std::int64_t i = 0; i < out_dim; ++i) out[i] = a * out[i] + b * other[i];
    top = most, sum = a * sum + b * other_sum;
  }
}

float factor_of(const Part& part, std::int64_t row) {
  const float sum = part.sum.data()[row];
  return sum == 0 ? 0.0f : 1.0f / sum;
}

template <class T>
void write_rows(const AttentionArgs& args, const Geometry& g, const Work& work, const Part& part) {
  const std::int64_t b = work.pair / args.q.heads(), h = work.pair % args.q.heads();
  fetch_rows(args.out, b, h, work.begin, work.end);
  for (std::int64_t i = work.begin; i < work.end; ++i) {
    const std::int64_t r = i - work.begin;
    const float* from = part.out.data() + r * g.out_dim;
    const float sum = part.sum.data()[r], factor = factor_of(part, r);
    std::transform(from, from + args.q.head_dim(), args.out.row<T>(b, i, h),
                   [factor](float x) { return from_f32<T>(x * factor); });
    if (args.lse == nullptr) continue;
    const double lse = static_cast<double>(part.top.data()[r]) * std::numbers::ln2 + std::log(static_cast<double>(sum));
    args.lse[lse_index(args.q.shape, b, h, i)] =
        sum == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(lse);
  }
}

// residual <- all - given, both divided by their sums.
template <class T>
void write_residual(const TensorView& residual, const Geometry& g, const Work& work, const Part& all,
                    const Part& given) {
  const std::int64_t b = work.pair / residual.heads(), h = work.pair % residual.heads();
  for (std::int64_t i = work.begin; i < work.end; ++i) {
    const std::int64_t r = i - work.begin;
    const float *x = all.out.data() + r * g.out_dim, *y = given.out.data() + r * g.out_dim;
    const float fx = factor_of(all, r), fy = factor_of(given, r);
    T* to = residual.row<T>(b, i, h);
    for (std::int64_t c = 0; c < residual.head_dim(); ++c) to[c] = from_f32<T>(x[c] * fx - y[c] * fy);
  }
}

// One tile over the keys of `args` that its mask keeps; q is packed.
void attend_part(const AttentionArgs& args, const Geometry& g, const Packed& packed, const Work& work,
                 std::span<const RowGroup> groups, const std::byte* q, Part& part) {
  const std::int64_t b = work.pair / args.q.heads(), h = work.pair % args.q.heads(), at = work.pair - packed.first_pair;
  cpu::collect_panels(args, b, h, work.q_block, g.shape.panel_keys, part.panels);
  cpu::attend_tile(g.shape, {.q = q,
                             .groups = groups,
                             .k = packed.k.data() + at * g.k_bytes,
                             .v = packed.v.data() + at * g.v_bytes,
                             .panels = part.panels,
                             .head_dim = g.depth,
                             .out_dim = g.out_dim,
                             .v_column_panels = g.column_panels,
                             .scale_log2 = static_cast<float>(std::abs(effective_scale(args)) * std::numbers::log2e),
                             .out = part.out.data(),
                             .top_log2 = part.top.data(),
                             .sum = part.sum.data()});
}

// Packed keys of one wave: the call's own, and the tail's.
struct Wave {
  Geometry g, tail_g;
  Packed own, tail;
};

template <class T>
void write(const AttentionArgs& args, const Geometry& g, const Beyond& beyond, const Work& work, Scratch& s) {
  const std::int64_t rows = work.end - work.begin;
  if (s.rest) merge_part(*s.rest, s.kept, 0, rows, g.out_dim);
  if (s.tail) merge_part(s.kept, *s.tail, beyond.tail_log2, rows, g.out_dim);
  write_rows<T>(args, g, work, s.rest ? *s.rest : s.kept);
  if (s.rest) write_residual<T>(beyond.residual, g, work, *s.rest, s.kept);
}

void attend_rows(const AttentionArgs& args, const Wave& wave, const Beyond& beyond, const Work& work, Scratch& s) {
  const std::int64_t b = work.pair / args.q.heads(), h = work.pair % args.q.heads();
  const std::vector<RowGroup> groups = group_rows(work.end - work.begin, wave.g.shape);
  fetch_rows(args.q, b, h, work.begin, work.end);
  const float sign = effective_scale(args) < 0 ? -1.0f : 1.0f;
  const cpu::Rows q{args.q, b, h};
  if (wave.g.shape.units)
    cpu::pack_q_units(q, work.begin, work.end, sign, groups, wave.g.depth, reinterpret_cast<Bf16*>(s.q.data()));
  else
    cpu::pack_q(q, work.begin, work.end, sign, groups, reinterpret_cast<float*>(s.q.data()));
  attend_part(args, wave.g, wave.own, work, groups, s.q.data(), s.kept);
  if (s.tail) attend_part(*beyond.tail, wave.tail_g, wave.tail, work, groups, s.q.data(), *s.tail);
  if (s.rest) attend_part(*beyond.rest, wave.g, wave.own, work, groups, s.q.data(), *s.rest);
  if (args.out.dtype == DType::kF32)
    write<float>(args, wave.g, beyond, work, s);
  else
    write<Bf16>(args, wave.g, beyond, work, s);
}

Packed space_for(std::int64_t heads, const Geometry& g) {
  return {Buffer<std::byte>(static_cast<std::size_t>(heads * g.k_bytes)),
          Buffer<std::byte>(static_cast<std::size_t>(heads * g.v_bytes))};
}

void attend_wave(const AttentionArgs& args, const Beyond& beyond, std::int64_t last, const Threads& threads,
                 Wave& wave) {
  const std::int64_t count = last - wave.own.first_pair;
  AttentionArgs packed = args;
  if (beyond.rest != nullptr) packed.mask = nullptr;
  pack_wave(packed, wave.g, count, threads, wave.own);
  if (beyond.tail != nullptr) pack_wave(*beyond.tail, wave.tail_g, count, threads, wave.tail);
  const std::vector<Work> list = list_work(args, wave.own.first_pair, last);
  std::atomic<std::size_t> next{0};
  threads.parallel_for(threads.width(), [&](std::int64_t) {
    std::size_t i = next.fetch_add(1);
    if (i >= list.size()) return;
    for (Scratch scratch(wave.g, beyond); i < list.size(); i = next.fetch_add(1)) {
      attend_rows(args, wave, beyond, list[i], scratch);
    }
  });
}

void attend_all(const AttentionArgs& args, const Beyond& beyond, const Threads& threads) {
  if (args.q.dtype == DType::kF16 || args.out.dtype != args.q.dtype) {
    fail(ErrorCode::kUnsupported, "attend_cpu: q is {} and out is {}; give all four tensors as f32 or all as bf16",
         to_string(args.q.dtype), to_string(args.out.dtype));
  }
  const std::int64_t pairs = args.q.batch() * args.q.heads();
  if (pairs == 0 || args.q.tokens() == 0) return;
  Wave wave{geometry_of(args), {}, {}, {}};
  wave.own = space_for(wave.g.wave_heads, wave.g);
  if (beyond.tail != nullptr) {
    wave.tail_g = geometry_of(*beyond.tail);
    wave.tail = space_for(wave.g.wave_heads, wave.tail_g);
  }
  for (std::int64_t first = 0; first < pairs; first += wave.g.wave_heads) {
    wave.own.first_pair = wave.tail.first_pair = first;
    attend_wave(args, beyond, std::min(pairs, first + wave.g.wave_heads), threads, wave);
  }
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionArgs& args, int threads) {
  check(args);
  const Geometry g = geometry_of(args);
  const std::int64_t packed = g.wave_heads * (g.k_bytes + g.v_bytes + g.panels);
  const std::int64_t tile =
      kScratchRows * (g.depth * element_bytes(g.shape) + (g.out_dim + 2) * std::int64_t{sizeof(float)});
  const std::int64_t list = g.panels * std::int64_t{sizeof(Panel)};
  const std::int64_t q_blocks = args.mask != nullptr ? args.mask->q_blocks() : 0;
  // Every query block adds at most one piece to the whole tiles; sorting takes as much again.
  const std::int64_t pieces = g.wave_heads * (args.q.tokens() / cpu::kTileRows + q_blocks + 1);
  return static_cast<std::size_t>(packed + threads * (tile + list) + 2 * pieces * std::int64_t{sizeof(Work)});
}

void attend_cpu(const AttentionArgs& args, const Threads& threads) {
  check(args);
  attend_all(args, {}, threads);
}

void attend_cpu(const AttentionArgs& args, const Dropped& dropped, const Threads& threads) {
  check(args);
  require(args.mask != nullptr, "attention: a tail and a residual are of the blocks that a mask drops; give a mask");
  const bool wants_residual = dropped.residual.data != nullptr;
  require(dropped.tail >= 0, "attention: a tail of {} tokens; give at least 0", dropped.tail);
  require(!wants_residual || (dropped.residual.shape == args.out.shape && dropped.residual.dtype == args.out.dtype),
          "attention: the residual has another shape or type than out");
  Beyond beyond;
  std::optional<Tail> tail;
  if (dropped.tail > 0) {
    tail = make_tail(args, dropped.tail, threads);
    beyond.tail_log2 = std::log2(static_cast<float>(dropped.tail));
    if (tail->args.k.tokens() > 0) beyond.tail = &tail->args;
  }
  AttentionArgs rest = args;
  BlockMask left_out;
  if (wants_residual) {
    left_out = complement(*args.mask);
    rest.mask = &left_out;
    beyond.rest = &rest, beyond.residual = dropped.residual;
  }
  attend_all(args, beyond, threads);
}

}  // namespace tulle
