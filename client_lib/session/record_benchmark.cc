// Measures the cost of a call for the thread that issues it.
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"

namespace djinn {
namespace {

// Runs a loop of `range` operators on two inputs. Each operator has a new
// result, which is released in the next iteration, as in inference.
void BM_RecordLoop(benchmark::State& state) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr weight = device->NewStorage(1024);
  StoragePtr value = device->NewStorage(1024);
  const int length = static_cast<int>(state.range(0));
  const int64_t sizes[] = {16, 64}, strides[] = {64, 1};
  Call call;
  int op = 0;
  for (auto _ : state) {
    StoragePtr fresh = device->NewStorage(1024);
    call.Begin(TestOperator(op));
    Operand operand;
    operand.data_type = srg::DataType::kUint8;
    operand.sizes = sizes;
    operand.strides = strides;
    operand.storage = weight.get();
    call.AddTensor(operand);
    operand.storage = value.get();
    call.AddTensor(operand);
    call.AddReal(1.0);
    operand.storage = fresh.get();
    operand.access = kCreates;
    call.AddResult(operand);
    if (!device->Record(1, &call).ok()) state.SkipWithError("failed");
    device->MarkDead(value.get());
    value = std::move(fresh);
    if (++op == length) op = 0;
  }
}
BENCHMARK(BM_RecordLoop)->Arg(7)->Arg(175)->Arg(900);

}  // namespace
}  // namespace djinn

BENCHMARK_MAIN();
