// Another front end: builds a graph from the .proto files alone, and runs it on
// a worker.
//
// usage: layer COORDINATOR TOKEN
//
// Uses gRPC, the protos and a hash, and neither PyTorch nor Djinn's client
// library. Computes relu(x W + b), and prints the result, one row per line.
#include <xxhash.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "djinn/v1/execution.grpc.pb.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/session.grpc.pb.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/srg.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace {

namespace v1 = djinn::v1;

template <typename Request, typename Response>
using Stream = grpc::ClientReaderWriter<Request, Response>;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "layer: %s\n", why.c_str());
  std::exit(1);
}

// Reads until a response matches.
template <typename Request, typename Response>
Response Await(Stream<Request, Response>* stream,
               std::function<bool(const Response&)> matches) {
  Response response;
  while (stream->Read(&response)) {
    if (matches(response)) return response;
  }
  Fail("the stream ended: " + stream->Finish().error_message());
}

struct Argument {
  std::string name;
  std::string type;
  bool keyword_only = false;
};

// Returns the hash that names an operator's schema, as docs/design/protocols.md
// describes it. The operator writes none of its arguments and has one result.
uint64_t SchemaHash(const std::string& name, const std::string& overload,
                    const std::vector<Argument>& arguments) {
  const auto text = [](const std::string& value) {
    return std::to_string(value.size()) + ":" + value;
  };
  std::string all = text(name) + text(overload);
  all += std::to_string(arguments.size()) + "(";
  for (const Argument& argument : arguments) {
    all += text(argument.name) + text(argument.type) + "-1" +
           (argument.keyword_only ? "k" : "p") + "-";
  }
  all += "1(" + text("") + text("Tensor") + "-1p-" + "--";
  return XXH3_64bits(all.data(), all.size());
}

v1::TensorView View(uint32_t slot, const std::vector<int64_t>& sizes) {
  v1::TensorView view;
  view.set_slot(slot);
  view.set_data_type(v1::DATA_TYPE_FLOAT32);
  int64_t stride = 1;
  for (const int64_t size : sizes) {
    view.add_sizes(size);
    view.add_strides(0);
  }
  for (int k = static_cast<int>(sizes.size()) - 1; k >= 0; --k) {
    view.set_strides(k, stride);
    stride *= sizes[static_cast<size_t>(k)];
  }
  return view;
}

// The slots b, x and W exist before the run. The run creates the product and
// its relu.
v1::Graph Layer() {
  v1::Graph graph;
  v1::Operator* const product = graph.add_operators();
  product->set_name("aten::addmm");
  product->set_schema_hash(SchemaHash("aten::addmm", "",
                                      {{"self", "Tensor"},
                                       {"mat1", "Tensor"},
                                       {"mat2", "Tensor"},
                                       {"beta", "number", true},
                                       {"alpha", "number", true}}));
  v1::Operator* const relu = graph.add_operators();
  relu->set_name("aten::relu");
  relu->set_schema_hash(SchemaHash("aten::relu", "", {{"self", "Tensor"}}));
  for (int i = 0; i < 3; ++i) graph.add_slots()->set_kind(v1::Slot::BOUND);
  for (int i = 0; i < 2; ++i) graph.add_slots()->set_kind(v1::Slot::RESULT);

  v1::Node* node = graph.add_nodes();
  *node->add_arguments()->mutable_tensor() = View(0, {4});
  *node->add_arguments()->mutable_tensor() = View(1, {2, 3});
  *node->add_arguments()->mutable_tensor() = View(2, {3, 4});
  node->add_arguments()->set_integer(1);
  node->add_arguments()->set_integer(1);
  *node->add_results()->mutable_view() = View(3, {2, 4});
  node = graph.add_nodes();
  node->set_operator_index(1);
  *node->add_arguments()->mutable_tensor() = View(3, {2, 4});
  *node->add_results()->mutable_view() = View(4, {2, 4});
  return graph;
}

// The ordered conversation with a worker.
class Worker {
 public:
  using Control = Stream<v1::ControlRequest, v1::ControlResponse>;

  Worker(const std::string& session_id, const v1::Lease& lease)
      : stub_(v1::Execution::NewStub(grpc::CreateChannel(
            lease.worker_address(), grpc::InsecureChannelCredentials()))),
        control_(stub_->Control(&context_)) {
    v1::ControlRequest request;
    v1::ClientHello* const hello = request.mutable_hello();
    hello->set_protocol_version(1);
    hello->set_session_id(session_id);
    hello->set_session_epoch(lease.session_epoch());
    hello->set_lease_token(lease.token());
    hello->set_worker_incarnation(lease.worker_incarnation());
    control_->Write(request);
  }

  void Send(v1::Ordered message) {
    message.set_sequence(++sequence_);
    v1::ControlRequest request;
    *request.mutable_ordered() = std::move(message);
    control_->Write(request);
  }

  // Creates a storage.
  void Install(uint64_t storage, const std::vector<float>& values) {
    v1::Ordered message;
    message.mutable_install()->set_storage(storage);
    message.mutable_install()->set_inline_value(values.data(),
                                                values.size() * sizeof(float));
    Send(std::move(message));
  }

  std::vector<float> Read(uint64_t storage, const v1::TensorView& view) {
    v1::Ordered message;
    message.mutable_read()->set_storage(storage);
    message.mutable_read()->set_version(1);
    *message.mutable_read()->mutable_view() = view;
    Send(std::move(message));
    v1::ReadReply reply;
    const auto answers = [&](const v1::ControlResponse& response) {
      if (response.admitted().has_refused()) {
        Fail(response.admitted().refused().message());
      }
      if (response.read().sequence() != sequence_) return false;
      reply = response.read();
      return true;
    };
    Await<v1::ControlRequest, v1::ControlResponse>(
        control_.get(), [&](const v1::ControlResponse& response) {
          // A message may bring those that come next.
          bool answered = answers(response);
          for (const v1::ControlResponse& next : response.following()) {
            answered |= answers(next);
          }
          return answered;
        });
    if (reply.has_error()) Fail(reply.error().message());
    std::vector<float> values(reply.value().size() / sizeof(float));
    std::memcpy(values.data(), reply.value().data(), reply.value().size());
    return values;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Execution::Stub> stub_;
  std::unique_ptr<Control> control_;
  uint64_t sequence_ = 0;
};

int Main(const std::string& coordinator, const std::string& token) {
  // Opens a session, and gets a lease on a worker.
  const auto stub = v1::Session::NewStub(
      grpc::CreateChannel(coordinator, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + token);
  const auto attached = stub->Attach(&context);
  using Answer = v1::SessionResponse;
  v1::SessionRequest request;
  request.mutable_open()->set_protocol_version(1);
  request.mutable_open()->set_program("layer");
  attached->Write(request);
  const std::string session_id =
      Await<v1::SessionRequest, Answer>(
          attached.get(), [](const Answer& a) { return a.has_opened(); })
          .opened()
          .session_id();
  request.mutable_lease()->set_virtual_device(0);
  attached->Write(request);
  const v1::Lease lease =
      Await<v1::SessionRequest, Answer>(attached.get(),
                                        [](const Answer& a) {
                                          if (a.has_refused())
                                            Fail(a.refused().message());
                                          return a.has_granted();
                                        })
          .granted()
          .lease();
  // The coordinator analyses the graph.
  *request.mutable_graph() = Layer();
  attached->Write(request);

  {
    Worker worker(session_id, lease);
    worker.Install(1, {1, 0, -1, 0});                            // b
    worker.Install(2, {1, 2, 3, 4, 5, 6});                       // x
    worker.Install(3, {1, 0, 0, -1, 0, 1, 0, -1, 0, 0, 1, -1});  // W
    v1::Ordered define;
    define.mutable_define_graph()->set_graph_id(1);
    *define.mutable_define_graph()->mutable_graph() = Layer();
    worker.Send(std::move(define));
    v1::Ordered run;
    run.mutable_run()->set_graph_id(1);
    for (uint64_t storage = 1; storage <= 5; ++storage) {
      v1::Binding* const binding = run.mutable_run()->add_bindings();
      binding->set_storage(storage);
      const bool created = storage > 3;
      binding->set_base_version(created ? 0 : 1);
      binding->set_writes(created ? 1 : 0);
      binding->set_reads(!created);
    }
    worker.Send(std::move(run));
    const std::vector<float> y = worker.Read(5, View(0, {2, 4}));
    for (size_t i = 0; i < y.size(); ++i) {
      std::printf("%g%c", y[i], i % 4 == 3 ? '\n' : ' ');
    }
  }
  request.mutable_close();
  attached->Write(request);
  attached->WritesDone();
  v1::SessionResponse rest;
  while (attached->Read(&rest)) {
  }
  const grpc::Status end = attached->Finish();
  if (!end.ok()) Fail(end.error_message());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) Fail("usage: layer COORDINATOR TOKEN");
  return Main(argv[1], argv[2]);
}
