// Executes commands with a coordinator's Admin service, and prints the answers.
#ifndef COORDINATOR_CTL_CLIENT_H_
#define COORDINATOR_CTL_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/ctl/command_line.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "google/protobuf/message.h"

namespace djinn::ctl {

// The client's output and its means to wait.
struct Terminal {
  // Prints text.
  std::function<void(absl::string_view)> print;
  std::function<void(absl::Duration)> sleep;
  // True for a terminal: each output of a watch then replaces the previous one.
  bool clears = false;
};

class Client {
 public:
  Client(std::unique_ptr<v1::Admin::StubInterface> stub, std::string token,
         Terminal terminal)
      : stub_(std::move(stub)),
        token_(std::move(token)),
        terminal_(std::move(terminal)) {}

  // Executes a command that needs a coordinator. InvalidArgument without a
  // reason means a wrong flag; other errors are the coordinator's.
  absl::Status Run(const Command& command);

 private:
  template <typename Request, typename Response>
  using Method = grpc::Status (v1::Admin::StubInterface::*)(
      grpc::ClientContext*, const Request&, Response*);

  // A kind of object: the methods that list and get it, and the setter of its
  // name.
  template <typename ItemType, typename ListType, typename PageType,
            typename GetType>
  struct Kind {
    using Item = ItemType;
    using GetRequest = GetType;
    Method<ListType, PageType> list;
    const google::protobuf::RepeatedPtrField<ItemType>& (
        PageType::*items)() const;
    Method<GetType, ItemType> get;
    void (*name)(const std::string&, GetType*);
  };
  // Calls `visit` with the Kind of that name.
  template <typename Visitor>
  static absl::Status WithKind(const std::string& kind, Visitor visit);

  absl::Status Get(const Command& command);
  absl::Status GetRuns(const Command& command);
  absl::Status Describe(const Command& command);
  absl::Status Watch(const Command& command);
  absl::Status Top(const Command& command);
  absl::Status Explain(const Command& command);
  absl::Status TryPlacement(const Command& command);
  absl::Status Cordon(const Command& command);
  absl::Status Migrate(const Command& command);
  absl::Status Queue(const Command& command);
  absl::Status TryQuota(const Command& command);
  absl::Status Reload(const Command& command);
  absl::Status Record();
  absl::Status Version();

  template <typename Request, typename Response>
  absl::Status Call(Method<Request, Response> method, const Request& request,
                    Response* response);
  // Returns all pages as one.
  template <typename Request, typename Response>
  absl::StatusOr<Response> ListAll(Method<Request, Response> list);
  template <typename KindType>
  absl::Status GetOne(const KindType& kind, const std::string& name,
                      typename KindType::Item* out) {
    typename KindType::GetRequest request;
    kind.name(name, &request);
    return Call(kind.get, request, out);
  }
  template <typename Item>
  absl::Status PrintOne(const Command& command, const Item& item);
  absl::Status PrintOne(const Command& command, const v1::GraphInfo& graph);
  absl::StatusOr<std::string> ExplainSession(const std::string& id,
                                             v1::SessionExplanation* out);
  absl::StatusOr<std::string> ExplainTenant(const std::string& name,
                                            v1::TenantExplanation* out);
  absl::Status ExplainRun(const Command& command);
  // Prints the message as JSON or YAML if the command asks for that, otherwise
  // the text.
  void Print(const Command& command, const google::protobuf::Message& message,
             absl::string_view text);

  const std::unique_ptr<v1::Admin::StubInterface> stub_;
  const std::string token_;
  const Terminal terminal_;
};

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_CLIENT_H_
