#include "gpu_worker/device/cpu/packed_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "gpu_worker/device/cpu/apart.h"

// The runtime that libtorch's own kernels use, where it has it.
extern "C" {
__attribute__((weak)) void GOMP_parallel(void (*body)(void*), void* data,
                                         unsigned threads, unsigned flags);
__attribute__((weak)) int omp_get_thread_num();
}

namespace djinn::worker {
namespace {

constexpr int kMaxThreads = 64;
// Multiplications, some 50 microseconds of one thread: the threads of a product
// that takes less stay where they are, since a move takes some ten itself.
constexpr int64_t kWorthParting = int64_t{1} << 21;

// One product, in pieces: some rows times a panel. Each thread has a stretch of
// neighbouring pieces, so that it reads the weight from front to back; who is
// done early helps the others, and a thread that comes late holds up nobody.
struct Product {
  struct alignas(64) Stretch {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  const PackedKernel* kernel;
  PanelProduct whole;
  int64_t rows_at_once;
  int64_t panels;
  int64_t panel_elements;
  // The last panel's bias and result, where it is not as wide as the others.
  const float* last_bias = nullptr;
  float* last_result = nullptr;
  // Each thread's share of the room for parts, if any.
  std::unique_ptr<float[]> scratch;
  int64_t scratch_elements = 0;
  int threads = 1;
  bool parts_threads = false;
  Apart apart;
  Stretch stretches[kMaxThreads];

  void Multiply(int64_t piece, int thread) const {
    const int64_t width = kernel->panel_width;
    const int64_t row = piece / panels * rows_at_once;
    const int64_t panel = piece % panels;
    PanelProduct part = whole;
    part.rows += row * whole.row_stride;
    part.row_count = std::min(rows_at_once, whole.row_count - row);
    part.panel += panel * panel_elements;
    if (scratch != nullptr)
      part.scratch = scratch.get() + thread * scratch_elements;
    if (panel == panels - 1 && last_result != nullptr) {
      part.bias = last_bias;
      part.result = last_result + row * width;
      part.result_stride = width;
    } else {
      if (part.bias != nullptr) part.bias += panel * width;
      part.result += row * whole.result_stride + panel * width;
    }
    kernel->multiply(part);
  }

  void Run(int thread) {
    if (parts_threads) apart.Begin(thread, threads);
    for (int i = 0; i < threads; ++i) {
      Stretch& stretch = stretches[(thread + i) % threads];
      for (;;) {
        const int64_t piece =
            stretch.next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= stretch.end) break;
        Multiply(piece, thread);
      }
    }
  }
};

}  // namespace

uint64_t PackedMatrix::Bytes(const PackedKernel& kernel,
                             const MatrixLayout& layout) {
  const int64_t panels =
      (layout.width + kernel.panel_width - 1) / kernel.panel_width;
  return static_cast<uint64_t>(panels * kernel.panel_width * layout.depth) *
         sizeof(float);
}

PackedMatrix::PackedMatrix(const PackedKernel& kernel,
                           const MatrixLayout& layout, c10::Storage memory,
                           std::shared_ptr<void> paid_for)
    : kernel_(kernel),
      layout_(layout),
      paid_for_(std::move(paid_for)),
      memory_(std::move(memory)) {}

int64_t PackedMatrix::panels() const {
  return (layout_.width + kernel_.panel_width - 1) / kernel_.panel_width;
}

const float* PackedMatrix::panel(int64_t index) const {
  return static_cast<const float*>(memory_.data()) +
         index * kernel_.panel_width * layout_.depth;
}

bool PackedMatrix::Pack(const float* source, uint64_t bytes) {
  const int64_t width = kernel_.panel_width;
  const uint64_t panel_bytes =
      static_cast<uint64_t>(width * layout_.depth) * sizeof(float);
  for (uint64_t done = 0; done < bytes && packed_panels_ < panels();
       done += panel_bytes) {
    const int64_t first = packed_panels_ * width;
    const int64_t columns = std::min(width, layout_.width - first);
    const float* const from =
        source + layout_.offset + first * layout_.width_stride;
    float* const to = static_cast<float*>(memory_.mutable_data()) +
                      packed_panels_ * width * layout_.depth;
    if (columns < width) std::memset(to, 0, panel_bytes);
    for (int64_t d = 0; d < layout_.depth; ++d) {
      for (int64_t w = 0; w < columns; ++w) {
        to[d * width + w] =
            from[d * layout_.depth_stride + w * layout_.width_stride];
      }
    }
    ++packed_panels_;
  }
  return packed_panels_ == panels();
}

void PackedMatrix::Multiply(const float* rows, int64_t row_stride,
                            int64_t row_count, const float* bias,
                            const SumOrder& order, float* result) const {
  used_.store(true, std::memory_order_relaxed);
  if (row_count == 0) return;
  const int64_t width = kernel_.panel_width;
  Product product;
  product.kernel = &kernel_;
  product.panels = panels();
  product.panel_elements = width * layout_.depth;
  product.whole = {.rows = rows,
                   .row_stride = row_stride,
                   .row_count = row_count,
                   .depth = layout_.depth,
                   .panel = panel(0),
                   .order = order,
                   .bias = bias,
                   .result = result,
                   .result_stride = layout_.width};
  const int64_t last_columns = layout_.width % width;
  std::vector<float> last;
  if (last_columns > 0) {
    // Behind the bias, the rows.
    last.resize(static_cast<size_t>((1 + row_count) * width));
    if (bias != nullptr) {
      std::copy_n(bias + layout_.width - last_columns, last_columns,
                  last.data());
    }
    product.last_bias = last.data();
    product.last_result = last.data() + width;
  }

  // Blocks of rows as large as each other, so that threads have as much to do.
  const int64_t most_rows = RowsAtOnce(kernel_, layout_.depth);
  const int64_t row_blocks = (row_count + most_rows - 1) / most_rows;
  product.rows_at_once = (row_count + row_blocks - 1) / row_blocks;
  const int64_t pieces = row_blocks * product.panels;
  if (GOMP_parallel != nullptr) {
    product.threads = static_cast<int>(
        std::min<int64_t>({at::get_num_threads(), kMaxThreads, pieces}));
  }
  product.parts_threads =
      row_count * layout_.depth * layout_.width >= kWorthParting;
  if (order.parts > 1) {
    product.scratch_elements =
        std::min(row_count, product.rows_at_once) * width;
    product.scratch.reset(new float[static_cast<size_t>(
        product.threads * product.scratch_elements)]);
  }
  for (int i = 0; i < product.threads; ++i) {
    product.stretches[i].next = pieces * i / product.threads;
    product.stretches[i].end = pieces * (i + 1) / product.threads;
  }
  if (product.threads == 1) {
    product.Run(0);
  } else {
    GOMP_parallel(
        [](void* data) {
          static_cast<Product*>(data)->Run(omp_get_thread_num());
        },
        &product, static_cast<unsigned>(product.threads), /*flags=*/0);
  }
  for (int64_t row = 0; row < row_count && last_columns > 0; ++row) {
    std::copy_n(product.last_result + row * width, last_columns,
                result + (row + 1) * layout_.width - last_columns);
  }
}

}  // namespace djinn::worker
