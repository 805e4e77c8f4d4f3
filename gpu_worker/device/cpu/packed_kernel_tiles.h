// The kernel of packed_kernel.h for vectors of some width; to be included by
// one source per instruction set, which is compiled for that set. Includes
// nothing that has code of its own: an inline function compiled here could be
// the copy that the linker keeps for everybody.
#ifndef GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_TILES_H_
#define GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_TILES_H_

#include <cstdint>

#include "gpu_worker/device/cpu/packed_kernel.h"

namespace djinn::worker {
namespace {

// Part of a panel that is multiplied with all rows before the next one is; it
// stays in the first cache.
constexpr int64_t kDepthAtOnce = 384;
// Elements of rows that stay in the second cache.
constexpr int64_t kElementsAtOnce = int64_t{1} << 18;
constexpr int64_t kCacheLine = 64;

struct Vector16 {
  static constexpr int64_t kWidth = 16;
  // Sums of so many rows, two vectors each, fit into the registers.
  static constexpr int64_t kMaxRows = 12;
  typedef float Type __attribute__((vector_size(64), aligned(4), may_alias));
};

struct Vector8 {
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kMaxRows = 6;
  typedef float Type __attribute__((vector_size(32), aligned(4), may_alias));
};

// Some rows times some of a panel's depth.
struct Tile {
  const float* rows;
  int64_t row_stride;
  int64_t depth;
  const float* panel;
  float* result;
  int64_t result_stride;
  // The sums begin with the bias, and not with what the result holds.
  bool begins;
  const float* bias;
  // Memory that is needed soon, and how far to go in it per step of depth.
  const char* next;
  int64_t next_step;
};

template <typename Vector, int kRows>
void MultiplyTile(const Tile& tile) {
  using V = typename Vector::Type;
  constexpr int64_t kWidth = Vector::kWidth;
  V sums[kRows][2];
  if (tile.begins) {
    V left = {}, right = {};
    if (tile.bias != nullptr) {
      left = *reinterpret_cast<const V*>(tile.bias);
      right = *reinterpret_cast<const V*>(tile.bias + kWidth);
    }
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      sums[row][0] = left;
      sums[row][1] = right;
    }
  } else {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const float* const result = tile.result + row * tile.result_stride;
      sums[row][0] = *reinterpret_cast<const V*>(result);
      sums[row][1] = *reinterpret_cast<const V*>(result + kWidth);
    }
  }
  // One address for every three rows: more would not fit into the registers.
  constexpr int kGroups = (kRows + 2) / 3;
  const int64_t stride = tile.row_stride;
  const float* groups[kGroups];
  for (int group = 0; group < kGroups; ++group) {
    groups[group] = tile.rows + 3 * group * stride;
  }
  const float* panel = tile.panel;
  const char* next = tile.next;
  const int64_t next_step = tile.next_step;
  for (int64_t i = tile.depth; i > 0; --i) {
    const V left = *reinterpret_cast<const V*>(panel);
    const V right = *reinterpret_cast<const V*>(panel + kWidth);
    __builtin_prefetch(next, /*rw=*/0, /*locality=*/2);
    __builtin_prefetch(next + kCacheLine, /*rw=*/0, /*locality=*/2);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const float factor = groups[row / 3][row % 3 * stride];
      sums[row][0] += factor * left;
      sums[row][1] += factor * right;
    }
#pragma GCC unroll 4
    for (int group = 0; group < kGroups; ++group) ++groups[group];
    panel += 2 * kWidth;
    next += next_step;
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    float* const result = tile.result + row * tile.result_stride;
    *reinterpret_cast<V*>(result) = sums[row][0];
    *reinterpret_cast<V*>(result + kWidth) = sums[row][1];
  }
}

template <typename Vector, int kRows>
void MultiplyUpTo(int64_t rows, const Tile& tile) {
  if (rows == kRows) return MultiplyTile<Vector, kRows>(tile);
  if constexpr (kRows > 1) MultiplyUpTo<Vector, kRows - 1>(rows, tile);
}

template <typename Vector>
int64_t RowsAtOnce(int64_t depth) {
  const int64_t rows = kElementsAtOnce / depth;
  const int64_t tiles = rows / Vector::kMaxRows;
  return (tiles > 0 ? tiles : 1) * Vector::kMaxRows;
}

template <typename Vector>
void MultiplyPanel(const PanelProduct& product) {
  constexpr int64_t kPanelWidth = 2 * Vector::kWidth;
  const int64_t tiles =
      (product.row_count + Vector::kMaxRows - 1) / Vector::kMaxRows;
  for (int64_t from = 0; from < product.depth; from += kDepthAtOnce) {
    const int64_t left = product.depth - from;
    const int64_t depth = left < kDepthAtOnce ? left : kDepthAtOnce;
    const int64_t part_bytes =
        depth * kPanelWidth * static_cast<int64_t>(sizeof(float));
    Tile tile;
    tile.row_stride = product.row_stride;
    tile.depth = depth;
    tile.panel = product.panel + from * kPanelWidth;
    tile.result_stride = product.result_stride;
    tile.begins = from == 0;
    tile.bias = product.bias;
    // The tiles share out the fetching of what comes next in the packed weight,
    // so that it takes no longer than they do. Behind its end it does no harm.
    tile.next_step = part_bytes / depth / tiles;
    int64_t row = 0;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t rows = (product.row_count - row) / (tiles - i);
      tile.rows = product.rows + row * product.row_stride + from;
      tile.result = product.result + row * product.result_stride;
      tile.next = reinterpret_cast<const char*>(tile.panel) + part_bytes +
                  i * (part_bytes / tiles);
      MultiplyUpTo<Vector, Vector::kMaxRows>(rows, tile);
      row += rows;
    }
  }
}

template <typename Vector>
constexpr PackedKernel KernelOf(const char* name) {
  return {name, 2 * Vector::kWidth, &RowsAtOnce<Vector>,
          &MultiplyPanel<Vector>};
}

}  // namespace
}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_TILES_H_
