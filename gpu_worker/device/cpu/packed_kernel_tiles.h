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

constexpr int64_t kCacheLine = 64;

struct Vector16 {
  static constexpr int64_t kWidth = 16;
  // Sums of so many rows, two vectors each, fit into the registers.
  static constexpr int64_t kMaxRows = 12;
  // Likewise of so many columns, kLanes each.
  static constexpr int64_t kMaxColumns = 12;
  typedef float Type __attribute__((vector_size(64), aligned(4), may_alias));
};

struct Vector8 {
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kMaxRows = 6;
  static constexpr int64_t kMaxColumns = 6;
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
  // The sums are added to the bias, if there is one, and not to what the result
  // holds.
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
  V sums[kRows][2] = {};
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
  const auto add = [&](int64_t step) __attribute__((always_inline)) {
    const float* const columns = panel + step * 2 * kWidth;
    const V left = *reinterpret_cast<const V*>(columns);
    const V right = *reinterpret_cast<const V*>(columns + kWidth);
    __builtin_prefetch(next + step * next_step, /*rw=*/0, /*locality=*/2);
    __builtin_prefetch(next + step * next_step + kCacheLine, /*rw=*/0,
                       /*locality=*/2);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const float factor = groups[row / 3][row % 3 * stride + step];
      sums[row][0] += factor * left;
      sums[row][1] += factor * right;
    }
  };
  // Two steps at a time: the counting takes places that products could.
  for (int64_t left = tile.depth / 2; left > 0; --left) {
    add(0);
    add(1);
#pragma GCC unroll 4
    for (int group = 0; group < kGroups; ++group) groups[group] += 2;
    panel += 2 * 2 * kWidth;
    next += 2 * next_step;
  }
  if (tile.depth % 2 > 0) add(0);
  if (tile.begins && tile.bias != nullptr) {
    const V left = *reinterpret_cast<const V*>(tile.bias);
    const V right = *reinterpret_cast<const V*>(tile.bias + kWidth);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      sums[row][0] = left + sums[row][0];
      sums[row][1] = right + sums[row][1];
    }
  } else if (!tile.begins) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const float* const result = tile.result + row * tile.result_stride;
      sums[row][0] = *reinterpret_cast<const V*>(result) + sums[row][0];
      sums[row][1] =
          *reinterpret_cast<const V*>(result + kWidth) + sums[row][1];
    }
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

// One block of the depth, that is multiplied with all rows before the next one
// is, so that this part of the panel stays in the first cache.
template <typename Vector>
void MultiplyBlock(const PanelProduct& product, int64_t from, int64_t depth,
                   bool begins, const float* bias, float* result,
                   int64_t result_stride) {
  constexpr int64_t kPanelWidth = 2 * Vector::kWidth;
  const int64_t tiles =
      (product.row_count + Vector::kMaxRows - 1) / Vector::kMaxRows;
  const int64_t part_bytes =
      depth * kPanelWidth * static_cast<int64_t>(sizeof(float));
  Tile tile;
  tile.row_stride = product.row_stride;
  tile.depth = depth;
  tile.panel = product.panel + from * kPanelWidth;
  tile.result_stride = result_stride;
  tile.begins = begins;
  tile.bias = bias;
  // The tiles share out the fetching of what comes next in the packed weight,
  // so that it takes no longer than they do. Behind its end it does no harm.
  tile.next_step = part_bytes / depth / tiles;
  int64_t row = 0;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t rows = (product.row_count - row) / (tiles - i);
    tile.rows = product.rows + row * product.row_stride + from;
    tile.result = result + row * result_stride;
    tile.next = reinterpret_cast<const char*>(tile.panel) + part_bytes +
                i * (part_bytes / tiles);
    MultiplyUpTo<Vector, Vector::kMaxRows>(rows, tile);
    row += rows;
  }
}

template <typename Vector>
void MultiplyPanel(const PanelProduct& product) {
  using V = typename Vector::Type;
  constexpr int64_t kPanelWidth = 2 * Vector::kWidth;
  static constexpr float kZeros[kPanelWidth] = {};
  const float* const bias = product.bias != nullptr ? product.bias : kZeros;
  const int64_t part = product.order.PartOf(product.depth);
  for (int64_t begin = 0; begin < product.depth; begin += part) {
    const bool first = begin == 0;
    const int64_t left = product.depth - begin;
    const int64_t end = begin + (left < part ? left : part);
    float* const result = first ? product.result : product.scratch;
    const int64_t stride = first ? product.result_stride : kPanelWidth;
    for (int64_t from = begin; from < end; from += product.order.block) {
      const int64_t rest = end - from;
      MultiplyBlock<Vector>(
          product, from,
          rest < product.order.block ? rest : product.order.block,
          from == begin, first ? bias : nullptr, result, stride);
    }
    if (first) continue;
    for (int64_t row = 0; row < product.row_count; ++row) {
      float* const total = product.result + row * product.result_stride;
      const float* const more = product.scratch + row * kPanelWidth;
      for (int64_t i = 0; i < kPanelWidth; i += Vector::kWidth) {
        *reinterpret_cast<V*>(total + i) =
            *reinterpret_cast<const V*>(total + i) +
            *reinterpret_cast<const V*>(more + i);
      }
    }
  }
}

// kColumns sums of every lane, from `from` to `end`.
template <typename Vector, int kColumns>
void SumColumns(const ColumnsProduct& product, const float* columns,
                int64_t from, int64_t end,
                typename Vector::Type sums[kColumns][kLanes / Vector::kWidth]) {
  using V = typename Vector::Type;
  constexpr int kVectors = kLanes / Vector::kWidth;
  V running[kColumns][kVectors] = {};
  constexpr int kGroups = (kColumns + 2) / 3;
  const int64_t stride = product.column_stride;
  const float* groups[kGroups];
  for (int group = 0; group < kGroups; ++group) {
    groups[group] = columns + 3 * group * stride + from;
  }
  const float* lanes = product.lanes + from * kLanes;
  for (int64_t i = end - from; i > 0; --i) {
    V rows[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      rows[v] = *reinterpret_cast<const V*>(lanes + v * Vector::kWidth);
    }
#pragma GCC unroll 16
    for (int column = 0; column < kColumns; ++column) {
      const float factor = groups[column / 3][column % 3 * stride];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        running[column][v] += factor * rows[v];
      }
    }
#pragma GCC unroll 4
    for (int group = 0; group < kGroups; ++group) ++groups[group];
    lanes += kLanes;
  }
#pragma GCC unroll 16
  for (int column = 0; column < kColumns; ++column) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[column][v] = running[column][v];
  }
}

template <typename Vector, int kColumns>
void MultiplySomeColumns(const ColumnsProduct& product, int64_t column) {
  using V = typename Vector::Type;
  constexpr int kVectors = kLanes / Vector::kWidth;
  const float* const columns = product.columns + column * product.column_stride;
  const int64_t part = product.order.PartOf(product.depth);
  V totals[kColumns][kVectors], sums[kColumns][kVectors];
  for (int64_t begin = 0; begin < product.depth; begin += part) {
    const int64_t left = product.depth - begin;
    const int64_t end = begin + (left < part ? left : part);
    V parts[kColumns][kVectors] = {};
    for (int64_t from = begin; from < end; from += product.order.block) {
      const int64_t rest = end - from;
      SumColumns<Vector, kColumns>(
          product, columns, from,
          rest < product.order.block ? end : from + product.order.block, sums);
      for (int c = 0; c < kColumns; ++c) {
        for (int v = 0; v < kVectors; ++v) {
          if (from > begin) {
            parts[c][v] = parts[c][v] + sums[c][v];
          } else if (begin == 0) {
            const float bias =
                product.bias != nullptr ? product.bias[column + c] : 0.0f;
            parts[c][v] = bias + sums[c][v];
          } else {
            parts[c][v] = sums[c][v];
          }
        }
      }
    }
    for (int c = 0; c < kColumns; ++c) {
      for (int v = 0; v < kVectors; ++v) {
        totals[c][v] = begin == 0 ? parts[c][v] : totals[c][v] + parts[c][v];
      }
    }
  }
  for (int64_t row = 0; row < product.row_count; ++row) {
    float* const result = product.result + row * product.result_stride + column;
    for (int c = 0; c < kColumns; ++c) {
      result[c] = totals[c][row / Vector::kWidth][row % Vector::kWidth];
    }
  }
}

template <typename Vector, int kColumns>
void MultiplyColumnsUpTo(int64_t count, const ColumnsProduct& product,
                         int64_t column) {
  if (count == kColumns) {
    return MultiplySomeColumns<Vector, kColumns>(product, column);
  }
  if constexpr (kColumns > 1) {
    MultiplyColumnsUpTo<Vector, kColumns - 1>(count, product, column);
  }
}

template <typename Vector>
void MultiplyColumns(const ColumnsProduct& product) {
  const int64_t groups =
      (product.width + Vector::kMaxColumns - 1) / Vector::kMaxColumns;
  int64_t column = 0;
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t count = (product.width - column) / (groups - i);
    MultiplyColumnsUpTo<Vector, Vector::kMaxColumns>(count, product, column);
    column += count;
  }
}

template <typename Vector>
constexpr PackedKernel KernelOf(const char* name) {
  return {name, 2 * Vector::kWidth, Vector::kMaxRows, &MultiplyPanel<Vector>,
          &MultiplyColumns<Vector>};
}

}  // namespace
}  // namespace djinn::worker

#endif  // GPU_WORKER_DEVICE_CPU_PACKED_KERNEL_TILES_H_
