// A collector of traces for tests. Listens on loopback, prints its address, and
// appends to FILE what it receives: for each request a line with its JSON, a
// tab, and its bytes in base64. Ends when its standard input does.
//
// usage: otlp_collector FILE
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "common/base/mutex.h"
#include "common/net/server.h"
#include "google/protobuf/util/json_util.h"
#include "grpcpp/server_context.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace djinn {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;

class Collector final : public otlp::TraceService::Service {
 public:
  explicit Collector(const char* path) : file_(path, std::ios::app) {}

  grpc::Status Export(grpc::ServerContext* /*context*/,
                      const otlp::ExportTraceServiceRequest* request,
                      otlp::ExportTraceServiceResponse* /*response*/) override {
    std::string json;
    if (!google::protobuf::util::MessageToJsonString(*request, &json).ok()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "no JSON"};
    }
    MutexLock lock(&mu_);
    file_ << json << '\t' << absl::Base64Escape(request->SerializeAsString())
          << std::endl;
    return grpc::Status::OK;
  }

 private:
  Mutex mu_;
  std::ofstream file_ ABSL_GUARDED_BY(mu_);
};

int Main(int argc, char** argv) {
  if (argc != 2) return 2;
  Collector collector(argv[1]);
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.services = {&collector};
  const auto server = Server::Start(options);
  if (!server.ok()) {
    std::cerr << server.status() << std::endl;
    return 1;
  }
  std::cout << (*server)->address() << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  return 0;
}

}  // namespace
}  // namespace djinn

int main(int argc, char** argv) { return djinn::Main(argc, argv); }
