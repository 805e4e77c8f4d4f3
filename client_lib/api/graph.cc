#include "djinn/graph.h"

#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/session/recording/graph_recorder.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "google/protobuf/util/json_util.h"

namespace djinn {
namespace {

absl::StatusOr<std::string> ToText(const v1::GraphExport& graphs,
                                   GraphFormat format) {
  if (format == GraphFormat::kBinary) return graphs.SerializeAsString();
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto status =
      google::protobuf::util::MessageToJsonString(graphs, &json, options);
  if (status.ok()) return json;
  return MakeError(
      absl::StatusCode::kInternal, "EXPORT_NOT_JSON",
      absl::StrCat("cannot write the graphs as JSON: ", status.ToString()));
}

}  // namespace

absl::StatusOr<std::string> ExportGraph(const std::function<void()>& program,
                                        GraphFormat format, int index) {
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<VirtualDevice> device,
                         capture::DeviceOfProcess(index));
  // Calls that were made before are not part of the export, nor are their
  // errors.
  DJINN_RETURN_IF_ERROR(device->CatchUp());
  GraphRecorder& recorder = GraphRecorder::Global();
  DJINN_RETURN_IF_ERROR(recorder.Begin(index));
  absl::Cleanup stop = [&recorder] { (void)recorder.End(); };
  program();
  DJINN_RETURN_IF_ERROR(device->CatchUp());
  std::move(stop).Cancel();
  DJINN_ASSIGN_OR_RETURN(const v1::GraphExport graphs, recorder.End());
  return ToText(graphs, format);
}

}  // namespace djinn
