#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/version.h"
#include "common/net/bearer.h"
#include "common/net/raw_message.h"
#include "coordinator/config/operators.h"
#include "coordinator/rpc/services.h"
#include "coordinator/rpc/stream_reactor.h"
#include "coordinator/tables/errors.h"
#include "djinn/v1/admin.pb.h"

namespace djinn::coordinator {
namespace {

constexpr char kGetVersion[] = "/djinn.v1.Admin/GetVersion";

// Answers one request with one message.
class AnsweredCall : public RawStream {
 public:
  explicit AnsweredCall(grpc::ByteBuffer response)
      : response_(std::move(response)) {
    StartRead(&request_);
  }

  void OnReadDone(bool /*ok*/) override {
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

class Service : public grpc::CallbackGenericService {
 public:
  Service(const Credentials* credentials, std::function<std::string()> leader,
          UnprovenConnections* unproven)
      : credentials_(*credentials),
        leader_(std::move(leader)),
        unproven_(unproven) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const std::string leader = leader_();
    if (context->method() != kGetVersion) {
      return new RefusedStream(NotLeader(leader));
    }
    const absl::StatusOr<std::string> token = ExtractBearer(*context);
    const absl::Status admitted =
        token.ok() ? credentials_.Admit(*token, Role::kViewer).status()
                   : token.status();
    if (!admitted.ok()) return new RefusedStream(admitted);
    NoteProven(*context, unproven_);
    v1::VersionInfo info;
    info.set_version(kVersion);
    info.set_follows(true);
    info.set_leader_address(leader);
    return new AnsweredCall(ToRawMessage(info));
  }

 private:
  const Credentials& credentials_;
  const std::function<std::string()> leader_;
  UnprovenConnections* const unproven_;
};

}  // namespace

std::unique_ptr<grpc::CallbackGenericService> MakeFollowerService(
    const Credentials* credentials, std::function<std::string()> leader,
    UnprovenConnections* unproven) {
  return std::make_unique<Service>(credentials, std::move(leader), unproven);
}

}  // namespace djinn::coordinator
