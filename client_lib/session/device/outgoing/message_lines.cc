#include "client_lib/session/device/outgoing/message_lines.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/log/log.h"

namespace djinn {
namespace {

std::string Describe(const v1::Install& install) {
  const std::string storage = absl::StrCat("storage ", install.storage());
  if (install.has_seed()) return absl::StrCat("seed of ", storage);
  if (install.has_pull()) {
    return absl::StrCat("copy of ", install.pull().size_bytes(),
                        " bytes from worker ", install.pull().worker_id(),
                        " to ", storage);
  }
  if (install.has_copy()) {
    return absl::StrCat("copy of storage ", install.copy().storage(),
                        ", version ", install.copy().version(), ", to ",
                        storage);
  }
  if (install.has_transfer()) {
    return absl::StrCat("upload ", install.transfer().transfer_id(), " of ",
                        install.transfer().size_bytes(), " bytes to ", storage);
  }
  return absl::StrCat("upload of ",
                      install.has_content() ? install.content().size()
                                            : install.inline_value().size(),
                      " bytes to ", storage);
}

std::string Describe(const v1::Ordered& message) {
  switch (message.action_case()) {
    case v1::Ordered::kDefineGraph:
      return absl::StrCat("graph ", message.define_graph().graph_id(), " of ",
                          message.define_graph().graph().nodes_size(),
                          " nodes");
    case v1::Ordered::kRun:
      return absl::StrCat("run of graph ", message.run().graph_id(), " on ",
                          message.run().bindings_size() +
                              message.run().repeat().storages_size(),
                          " storages",
                          message.run().size() == 0
                              ? ""
                              : absl::StrCat(", size ", message.run().size()));
    case v1::Ordered::kInstall:
      return Describe(message.install());
    case v1::Ordered::kCreateStorage:
      return absl::StrCat("storage ", message.create_storage().storage(),
                          " of ", message.create_storage().size_bytes(),
                          " bytes");
    case v1::Ordered::kRead:
      return absl::StrCat("read of storage ", message.read().storage(),
                          ", version ", message.read().version());
    case v1::Ordered::kFree:
      return absl::StrCat("end of ", message.free().storages_size(),
                          " storages");
    case v1::Ordered::kOffer:
      return absl::StrCat("offer of storage ", message.offer().storage(),
                          ", version ", message.offer().version());
    case v1::Ordered::kProfile:
      return v1::ProfileAction_Name(message.profile().action());
    case v1::Ordered::kMigrate:
      return message.migrate().has_leave()  ? "leave"
             : message.migrate().has_stay() ? "stay"
                                            : "enter";
    case v1::Ordered::kMeter:
      return "question for what was used";
    case v1::Ordered::kRegisterModel:
      return absl::StrCat("model ", message.register_model().model_id(), " of ",
                          message.register_model().storages_size(),
                          " storages");
    case v1::Ordered::ACTION_NOT_SET:
      break;
  }
  return "nothing";
}

std::string Describe(const v1::ControlRequest& message) {
  switch (message.message_case()) {
    case v1::ControlRequest::kHello:
      return "hello";
    case v1::ControlRequest::kOrdered:
      return Describe(message.ordered());
    case v1::ControlRequest::kSupply:
      return absl::StrCat("graph ", message.supply().graph_id(), " once more");
    case v1::ControlRequest::kCancel:
      return "cancel";
    case v1::ControlRequest::kProof:
      return absl::StrCat("proof of having the bytes of upload ",
                          message.proof().transfer_id());
    case v1::ControlRequest::MESSAGE_NOT_SET:
      break;
  }
  return absl::StrCat("acknowledgement up to reply ",
                      message.acknowledged_reply());
}

std::string Words(const v1::ErrorDetail& error) {
  return std::string(StatusFromDetail(error).message());
}

std::string Describe(const v1::ReadReply& reply) {
  const std::string read = absl::StrCat("read ", reply.sequence());
  switch (reply.outcome_case()) {
    case v1::ReadReply::kValue:
      return absl::StrCat(reply.value().size(), " bytes for ", read);
    case v1::ReadReply::kBulkBytes:
      return absl::StrCat(reply.bulk_bytes(), " bytes to come for ", read);
    default:
      return absl::StrCat("no value for ", read, ": ", Words(reply.error()));
  }
}

std::string Describe(const v1::TransferDecision& decision) {
  const std::string upload = absl::StrCat("upload ", decision.transfer_id());
  if (decision.has_refused()) {
    return absl::StrCat(upload, " refused: ", Words(decision.refused()));
  }
  if (decision.has_prove()) {
    return absl::StrCat(upload,
                        " not needed if this process proves that it "
                        "has the bytes");
  }
  return absl::StrCat(upload, decision.already_held()
                                  ? " not needed: the worker has the bytes"
                                  : " may begin");
}

std::string Describe(const v1::Admitted& admitted) {
  const std::string graph = absl::StrCat("graph ", admitted.graph_id());
  if (admitted.has_refused()) {
    return absl::StrCat(graph, " refused: ", Words(admitted.refused()));
  }
  return absl::StrCat(graph, admitted.cache_hit()
                                 ? ": plan hit"
                                 : ": plan miss, the worker did not have it");
}

std::string Describe(const v1::ControlResponse& message) {
  switch (message.message_case()) {
    case v1::ControlResponse::kHello:
      return absl::StrCat("hello of worker ", message.hello().worker_id());
    case v1::ControlResponse::kRead:
      return Describe(message.read());
    case v1::ControlResponse::kMetadata:
      return message.metadata().has_error()
                 ? absl::StrCat("no metadata of run ",
                                message.metadata().sequence(), ": ",
                                Words(message.metadata().error()))
                 : absl::StrCat("metadata of run ",
                                message.metadata().sequence());
    case v1::ControlResponse::kTransfer:
      return Describe(message.transfer());
    case v1::ControlResponse::kPoisoned:
      return absl::StrCat("root error: ", Words(message.poisoned()));
    case v1::ControlResponse::kAdmitted:
      return Describe(message.admitted());
    case v1::ControlResponse::kNeed:
      return absl::StrCat("graph ", message.need().graph_id(),
                          " wanted again: its plan was evicted");
    case v1::ControlResponse::kProfile:
      return absl::StrCat("times of ", message.profile().runs_size(), " runs");
    case v1::ControlResponse::kCancelled:
      return "cancelled";
    case v1::ControlResponse::kLeft:
      return message.left().has_refused()
                 ? absl::StrCat("cannot leave: ",
                                Words(message.left().refused()))
                 : absl::StrCat("left, with a state of ",
                                message.left().state_bytes(), " bytes");
    case v1::ControlResponse::kEntered:
      return message.entered().has_refused()
                 ? absl::StrCat("cannot enter: ",
                                Words(message.entered().refused()))
                 : absl::StrCat("entered, with ",
                                message.entered().storage_count(), " storages");
    case v1::ControlResponse::kMetered:
      return absl::StrCat(
          "used so far: ", message.metered().use().device_nanoseconds(),
          " ns of the device");
    case v1::ControlResponse::kModelRegistered:
      return message.model_registered().has_refused()
                 ? absl::StrCat("model refused: ",
                                Words(message.model_registered().refused()))
                 : absl::StrCat("model of ",
                                message.model_registered().size_bytes(),
                                " bytes");
    case v1::ControlResponse::MESSAGE_NOT_SET:
      break;
  }
  return message.has_window() ? "room for more" : "progress";
}

}  // namespace

void LogSent(int device, const v1::ControlRequest& message) {
  log::Info("sent", {{"device", device},
                     {"sequence", message.ordered().sequence()},
                     {"lane", message.ordered().lane()},
                     {"what", Describe(message)},
                     {"bytes", message.ByteSizeLong()}});
}

void LogReceived(int device, const v1::ControlResponse& message) {
  log::Info("received", {{"device", device},
                         {"completed", message.completed_sequence()},
                         {"what", Describe(message)},
                         {"bytes", message.ByteSizeLong()}});
}

}  // namespace djinn
