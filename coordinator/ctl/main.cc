// djinnctl get workers|sessions|tenants|leases|graphs [NAME] [-o table|json]
// djinnctl get graph NAME -o dot|svg
// djinnctl get runs SESSION [-o table|json]
// djinnctl explain session|tenant|placement NAME [-o table|json]
// djinnctl explain run SESSION/RUN [-o table|json]
// djinnctl cordon|uncordon|drain worker NAME
// djinnctl migrate session NAME [--to=WORKER] [--device=N]
// djinnctl reload
// djinnctl record
// djinnctl simulate FILE [--policy=NAME] [--preemption=true|false]
//
// Asks a coordinator's Admin service. Exit status: 0 ok, 1 refused, 2 wrong
// command line, 3 unreachable.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config_reader.h"
#include "common/error.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/tls.h"
#include "common/net/tls_config.h"
#include "common/net/tls_probe.h"
#include "common/read_file.h"
#include "common/secret_file.h"
#include "common/status_macros.h"
#include "coordinator/ctl/detail.h"
#include "coordinator/ctl/drawing.h"
#include "coordinator/ctl/explanation.h"
#include "coordinator/ctl/recording.h"
#include "coordinator/ctl/run_explanation.h"
#include "coordinator/ctl/simulation.h"
#include "coordinator/ctl/table.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/simulator/trace_file.h"

ABSL_FLAG(std::string, coordinator, "",
          "The coordinator's address; DJINN_COORDINATOR otherwise, "
          "127.0.0.1:7070 by default.");
ABSL_FLAG(std::string, token_file, "",
          "File with the admin token; DJINN_ADMIN_TOKEN_FILE otherwise.");
ABSL_FLAG(std::string, tls_ca_file, "",
          "Authorities for the coordinator's certificate: use TLS; "
          "DJINN_TLS_CA_FILE otherwise.");
ABSL_FLAG(std::string, tls_certificate_file, "",
          "Certificate to show; DJINN_TLS_CERTIFICATE_FILE otherwise.");
ABSL_FLAG(std::string, tls_private_key_file, "",
          "Its private key; DJINN_TLS_PRIVATE_KEY_FILE otherwise.");
ABSL_FLAG(std::string, tls_server_name, "",
          "Whom the coordinator's certificate must name instead of the "
          "address's host; DJINN_TLS_SERVER_NAME otherwise.");
ABSL_FLAG(bool, insecure, false,
          "Allow an address that is not local without TLS.");
ABSL_FLAG(std::string, policy, "",
          "Of explain placement: how to choose; the tenant's policy otherwise. "
          "Of simulate: play this one alone.");
ABSL_FLAG(bool, preemption, true,
          "Of simulate: whether training gives way to other jobs.");
ABSL_FLAG(std::string, size, "0",
          "Of explain placement: what the session would upload, such as 16GB.");
ABSL_FLAG(std::string, phase, "",
          "Of explain placement: as if its work were llm_decode, say.");
ABSL_FLAG(std::string, session, "",
          "Of explain placement: a session whose work is to be assumed.");
ABSL_FLAG(std::string, to, "",
          "Of migrate: the worker to go to; placement chooses otherwise.");
ABSL_FLAG(int, device, -1,
          "Of migrate: the one virtual device that is to go; all otherwise.");
ABSL_FLAG(std::string, o, "table",
          "Output: table or json; dot or svg for one graph.");

namespace djinn::ctl {
namespace {

// A recorded one may have 100,000 jobs.
constexpr size_t kMaxTraceBytes = size_t{128} << 20;

constexpr char kUsage[] =
    "djinnctl get workers|sessions|tenants|leases|graphs [NAME]"
    " [-o table|json|dot|svg], or\n"
    "djinnctl get runs SESSION [-o table|json], or\n"
    "djinnctl explain session|tenant|placement NAME [-o table|json], or\n"
    "djinnctl explain run SESSION/RUN [-o table|json], or\n"
    "djinnctl cordon|uncordon|drain worker NAME, or\n"
    "djinnctl migrate session NAME [--to=WORKER] [--device=N], or\n"
    "djinnctl reload, or\n"
    "djinnctl record, or\n"
    "djinnctl simulate FILE [--policy=NAME] [--preemption=true|false]\n"
    "                       [-o table|json]";

std::string FlagOrEnvironment(const std::string& flag, const char* variable,
                              const char* fallback) {
  if (!flag.empty()) return flag;
  const char* const value = std::getenv(variable);
  return value == nullptr ? fallback : value;
}

ChannelTls TlsOfFlags() {
  ChannelTls tls = ChannelTlsFromEnvironment();
  const auto override = [](const std::string& flag, std::string* value) {
    if (!flag.empty()) *value = flag;
  };
  override(absl::GetFlag(FLAGS_tls_ca_file), &tls.ca_file);
  override(absl::GetFlag(FLAGS_tls_certificate_file), &tls.certificate_file);
  override(absl::GetFlag(FLAGS_tls_private_key_file), &tls.private_key_file);
  override(absl::GetFlag(FLAGS_tls_server_name), &tls.server_name);
  return tls;
}

template <typename Request, typename Response>
using Method = grpc::Status (v1::Admin::Stub::*)(grpc::ClientContext*,
                                                 const Request&, Response*);

class Client {
 public:
  Client(std::shared_ptr<grpc::Channel> channel, std::string token,
         std::string output)
      : stub_(v1::Admin::NewStub(std::move(channel))),
        token_(std::move(token)),
        output_(std::move(output)) {}

  // Has the coordinator read its configuration, and shows what changed.
  absl::Status Reload() {
    v1::ReloadConfigResponse changes;
    DJINN_RETURN_IF_ERROR(Call(&v1::Admin::Stub::ReloadConfig,
                               v1::ReloadConfigRequest(), &changes));
    std::vector<Row> rows = {{"TENANT", "CHANGE"}};
    const auto add = [&rows](const auto& names, const char* change) {
      for (const std::string& name : names) rows.push_back({name, change});
    };
    add(changes.added_tenants(), "added");
    add(changes.changed_tenants(), "changed");
    add(changes.removed_tenants(), "removed");
    std::string text = FormatTable(rows);
    if (changes.pending_settings_size() > 0) {
      absl::StrAppend(&text,
                      "\nnot reloaded, counts when the coordinator starts "
                      "again: ",
                      absl::StrJoin(changes.pending_settings(), " "), "\n");
    }
    Print(changes, text);
    return absl::OkStatus();
  }

  // Writes what ran, as a trace.
  absl::Status Record() {
    DJINN_ASSIGN_OR_RETURN(
        const auto workers,
        (ListAll<v1::ListWorkersRequest>(&v1::Admin::Stub::ListWorkers)));
    DJINN_ASSIGN_OR_RETURN(
        const auto tenants,
        (ListAll<v1::ListTenantsRequest>(&v1::Admin::Stub::ListTenants)));
    DJINN_ASSIGN_OR_RETURN(const auto jobs,
                           (ListAll<v1::ListRecordedJobsRequest>(
                               &v1::Admin::Stub::ListRecordedJobs)));
    const std::string text =
        TraceOf({workers.workers().begin(), workers.workers().end()},
                {tenants.tenants().begin(), tenants.tenants().end()},
                {jobs.jobs().begin(), jobs.jobs().end()});
    std::fputs(text.c_str(), stdout);
    return absl::OkStatus();
  }

  absl::Status ExplainSession(const std::string& id) {
    v1::ExplainSessionRequest request;
    request.set_session_id(id);
    v1::SessionExplanation explanation;
    DJINN_RETURN_IF_ERROR(
        Call(&v1::Admin::Stub::ExplainSession, request, &explanation));
    v1::GetSessionRequest get;
    get.set_session_id(id);
    v1::SessionInfo session;
    DJINN_RETURN_IF_ERROR(Call(&v1::Admin::Stub::GetSession, get, &session));
    Print(explanation, Explain(explanation, session));
    return absl::OkStatus();
  }
  absl::Status ExplainTenant(const std::string& name) {
    v1::ExplainTenantRequest request;
    request.set_tenant(name);
    return ShowExplanation<v1::TenantExplanation>(
        &v1::Admin::Stub::ExplainTenant, request);
  }
  absl::Status ListRuns(const std::string& session) {
    v1::ListRunsRequest request;
    request.set_session_id(session);
    v1::ListRunsResponse runs;
    DJINN_RETURN_IF_ERROR(Call(&v1::Admin::Stub::ListRuns, request, &runs));
    Print(runs, ShowRuns(runs));
    return absl::OkStatus();
  }
  absl::Status ExplainRun(const v1::ExplainRunRequest& request) {
    return ShowExplanation<v1::RunExplanation>(&v1::Admin::Stub::ExplainRun,
                                               request);
  }
  absl::Status TryPlacement(const v1::TryPlacementRequest& request) {
    return ShowExplanation<v1::TryPlacementResponse>(
        &v1::Admin::Stub::TryPlacement, request);
  }
  absl::Status Cordon(const std::string& worker, bool cordoned, bool drain) {
    v1::CordonWorkerRequest request;
    request.set_worker_id(worker);
    request.set_cordoned(cordoned);
    request.set_drain(drain);
    v1::WorkerInfo info;
    DJINN_RETURN_IF_ERROR(Call(&v1::Admin::Stub::CordonWorker, request, &info));
    return PrintOne(info);
  }

  absl::Status Migrate(const v1::MigrateSessionRequest& request) {
    v1::MigrateSessionResponse response;
    DJINN_RETURN_IF_ERROR(
        Call(&v1::Admin::Stub::MigrateSession, request, &response));
    Print(response, Detail(response));
    return absl::OkStatus();
  }

  // Shows all items, page by page, or the one that `fill` names in a Get
  // request.
  template <typename Item, typename ListRequest, typename ListResponse,
            typename GetRequest>
  absl::Status Show(
      Method<ListRequest, ListResponse> list,
      const google::protobuf::RepeatedPtrField<Item>& (ListResponse::*items)()
          const,
      Method<GetRequest, Item> get,
      void (*fill)(const std::string&, GetRequest*), const std::string& name) {
    if (!name.empty()) {
      GetRequest request;
      fill(name, &request);
      Item item;
      DJINN_RETURN_IF_ERROR(Call(get, request, &item));
      return PrintOne(item);
    }
    DJINN_ASSIGN_OR_RETURN(const ListResponse all, ListAll<ListRequest>(list));
    std::vector<Row> rows = {Header(Item())};
    for (const Item& item : (all.*items)()) rows.push_back(Cells(item));
    Print(all, FormatTable(rows));
    return absl::OkStatus();
  }

 private:
  // All pages as one.
  template <typename Request, typename Response>
  absl::StatusOr<Response> ListAll(Method<Request, Response> list) {
    Request request;
    request.set_page_size(1000);
    Response all;
    do {
      Response page;
      DJINN_RETURN_IF_ERROR(Call(list, request, &page));
      request.set_page_token(page.next_page_token());
      all.MergeFrom(page);
    } while (!request.page_token().empty());
    all.clear_next_page_token();
    return all;
  }

  template <typename Request, typename Response>
  absl::Status Call(Method<Request, Response> method, const Request& request,
                    Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(10));
    PutBearer(token_, &context);
    return FromGrpcStatus(((*stub_).*method)(&context, request, response));
  }

  template <typename Explanation, typename Request>
  absl::Status ShowExplanation(Method<Request, Explanation> method,
                               const Request& request) {
    Explanation explanation;
    DJINN_RETURN_IF_ERROR(Call(method, request, &explanation));
    Print(explanation, Explain(explanation));
    return absl::OkStatus();
  }

  template <typename Item>
  absl::Status PrintOne(const Item& item) {
    Print(item, Detail(item));
    return absl::OkStatus();
  }
  absl::Status PrintOne(const v1::GraphInfo& graph) {
    std::string text;
    if (output_ == "dot") {
      DJINN_ASSIGN_OR_RETURN(text, ToDot(graph));
    } else if (output_ == "svg") {
      DJINN_ASSIGN_OR_RETURN(text, ToSvg(graph));
    } else {
      text = Detail(graph);
    }
    Print(graph, std::move(text));
    return absl::OkStatus();
  }

  // In JSON, or else as the text says.
  void Print(const google::protobuf::Message& message, std::string text) {
    if (output_ == "json") {
      text.clear();
      google::protobuf::util::JsonPrintOptions options;
      options.add_whitespace = true;
      options.always_print_primitive_fields = true;
      options.preserve_proto_field_names = true;
      (void)google::protobuf::util::MessageToJsonString(message, &text,
                                                        options);
    }
    std::fputs(text.c_str(), stdout);
  }

  const std::unique_ptr<v1::Admin::Stub> stub_;
  const std::string token_;
  const std::string output_;
};

bool IsKind(const std::string& kind) {
  for (const char* known :
       {"workers", "sessions", "tenants", "leases", "graphs"}) {
    if (kind == known) return true;
  }
  return false;
}

absl::Status Show(const std::string& kind, const std::string& name,
                  Client* client) {
  using Stub = v1::Admin::Stub;
  if (kind == "workers") {
    return client->Show<v1::WorkerInfo, v1::ListWorkersRequest,
                        v1::ListWorkersResponse, v1::GetWorkerRequest>(
        &Stub::ListWorkers, &v1::ListWorkersResponse::workers, &Stub::GetWorker,
        [](const std::string& id, auto* request) {
          request->set_worker_id(id);
        },
        name);
  }
  if (kind == "sessions") {
    return client->Show<v1::SessionInfo, v1::ListSessionsRequest,
                        v1::ListSessionsResponse, v1::GetSessionRequest>(
        &Stub::ListSessions, &v1::ListSessionsResponse::sessions,
        &Stub::GetSession,
        [](const std::string& id, auto* request) {
          request->set_session_id(id);
        },
        name);
  }
  if (kind == "tenants") {
    return client->Show<v1::TenantInfo, v1::ListTenantsRequest,
                        v1::ListTenantsResponse, v1::GetTenantRequest>(
        &Stub::ListTenants, &v1::ListTenantsResponse::tenants, &Stub::GetTenant,
        [](const std::string& id, auto* request) { request->set_tenant(id); },
        name);
  }
  if (kind == "leases") {
    return client->Show<v1::LeaseInfo, v1::ListLeasesRequest,
                        v1::ListLeasesResponse, v1::GetLeaseRequest>(
        &Stub::ListLeases, &v1::ListLeasesResponse::leases, &Stub::GetLease,
        [](const std::string& id, auto* request) { request->set_lease_id(id); },
        name);
  }
  return client->Show<v1::GraphInfo, v1::ListGraphsRequest,
                      v1::ListGraphsResponse, v1::GetGraphRequest>(
      &Stub::ListGraphs, &v1::ListGraphsResponse::graphs, &Stub::GetGraph,
      [](const std::string& id, auto* request) {
        request->set_fingerprint(id);
      },
      name);
}

// "graph" and the like, too.
std::string Plural(std::string kind) {
  return kind.empty() || kind.back() == 's' ? kind : kind + "s";
}

bool IsOutput(const std::string& output, const std::string& kind, bool one) {
  if (output == "dot" || output == "svg") return kind == "graphs" && one;
  return output == "table" || output == "json";
}

int Usage() {
  std::fprintf(stderr, "usage: %s\n", kUsage);
  return 2;
}

int Refuse(absl::string_view why) {
  std::fprintf(stderr, "djinnctl: %s\n", std::string(why).c_str());
  return 2;
}

// What a command line asks for.
struct Command {
  std::string verb;
  std::string kind;
  std::string name;
};

bool IsWellFormed(const Command& command, const std::string& output) {
  const bool named = !command.name.empty();
  if (command.verb == "get" && command.kind == "runs") {
    return named && IsOutput(output, command.kind, named);
  }
  if (command.verb == "get") {
    return IsKind(command.kind) && IsOutput(output, command.kind, named);
  }
  if (!IsOutput(output, "", false)) return false;
  if (command.verb == "explain") {
    return named && (command.kind == "session" || command.kind == "tenant" ||
                     command.kind == "placement" || command.kind == "run");
  }
  if (command.verb == "cordon" || command.verb == "uncordon" ||
      command.verb == "drain") {
    return named && command.kind == "worker";
  }
  if (command.verb == "migrate") return named && command.kind == "session";
  if (command.verb == "reload") return command.kind.empty();
  if (command.verb == "record")
    return command.kind.empty() && output == "table";
  return command.verb == "simulate" && !command.kind.empty() && !named;
}

absl::StatusOr<v1::TryPlacementRequest> PlacementOfFlags(
    const std::string& tenant) {
  v1::TryPlacementRequest request;
  request.set_tenant(tenant);
  DJINN_ASSIGN_OR_RETURN(const uint64_t size,
                         ParseSize(absl::GetFlag(FLAGS_size)));
  request.set_asked_bytes(size);
  request.set_policy(absl::GetFlag(FLAGS_policy));
  request.set_session_id(absl::GetFlag(FLAGS_session));
  const std::string name = absl::GetFlag(FLAGS_phase);
  v1::Phase phase = v1::PHASE_UNSPECIFIED;
  if (!name.empty() &&
      !v1::Phase_Parse("PHASE_" + absl::AsciiStrToUpper(name), &phase)) {
    return absl::InvalidArgumentError("there is no phase \"" + name + "\"");
  }
  request.set_phase(phase);
  return request;
}

absl::Status Run(const Command& command, const v1::TryPlacementRequest& asked,
                 Client* client) {
  if (command.verb == "get" && command.kind == "runs") {
    return client->ListRuns(command.name);
  }
  if (command.verb == "get") return Show(command.kind, command.name, client);
  if (command.verb == "reload") return client->Reload();
  if (command.verb == "record") return client->Record();
  if (command.verb == "explain") {
    if (command.kind == "session") return client->ExplainSession(command.name);
    if (command.kind == "tenant") return client->ExplainTenant(command.name);
    if (command.kind == "run")
      return client->ExplainRun(*ParseRun(command.name));
    return client->TryPlacement(asked);
  }
  if (command.verb == "migrate") {
    v1::MigrateSessionRequest request;
    request.set_session_id(command.name);
    request.set_to_worker_id(absl::GetFlag(FLAGS_to));
    const int device = absl::GetFlag(FLAGS_device);
    if (device >= 0) request.set_virtual_device(device);
    return client->Migrate(request);
  }
  return client->Cordon(command.name, command.verb != "uncordon",
                        command.verb == "drain");
}

// Needs no coordinator. A trace that is wrong is a wrong command line.
int Simulate(const std::string& file, const std::string& output) {
  const absl::StatusOr<std::string> text_of_trace =
      ReadFile(file, kMaxTraceBytes);
  if (!text_of_trace.ok()) {
    return Refuse("cannot read " + file + ": " +
                  std::string(text_of_trace.status().message()));
  }
  const absl::StatusOr<scheduler::Trace> trace =
      scheduler::ReadTrace(ConfigReader::FromText(*text_of_trace, file));
  if (!trace.ok()) return Refuse(trace.status().message());
  const absl::StatusOr<std::string> text =
      ShowSimulation(*trace, absl::GetFlag(FLAGS_policy),
                     absl::GetFlag(FLAGS_preemption), output == "json");
  if (!text.ok()) return Refuse(text.status().message());
  std::fputs(text->c_str(), stdout);
  return 0;
}

int Main(const std::vector<char*>& arguments) {
  const std::string output = absl::GetFlag(FLAGS_o);
  if (arguments.size() < 2 || arguments.size() > 4) return Usage();
  Command command{arguments[1], arguments.size() > 2 ? arguments[2] : "",
                  arguments.size() > 3 ? arguments[3] : ""};
  if (command.verb == "get") command.kind = Plural(command.kind);
  if (!IsWellFormed(command, output)) return Usage();
  if (command.verb == "simulate") return Simulate(command.kind, output);
  if (command.verb == "explain" && command.kind == "run") {
    const auto run = ParseRun(command.name);
    if (!run.ok()) return Refuse(run.status().message());
  }
  const absl::StatusOr<v1::TryPlacementRequest> asked =
      PlacementOfFlags(command.name);
  if (!asked.ok()) return Refuse(asked.status().message());
  const std::string token_file = FlagOrEnvironment(
      absl::GetFlag(FLAGS_token_file), "DJINN_ADMIN_TOKEN_FILE", "");
  if (token_file.empty()) return Refuse("--token_file=FILE is required");
  const absl::StatusOr<std::string> token = ReadToken(token_file);
  if (!token.ok()) return Refuse(token.status().message());
  const absl::StatusOr<ChannelSecurity> security =
      ChannelSecurity::Make(TlsOfFlags(), absl::GetFlag(FLAGS_insecure));
  if (!security.ok()) return Refuse(security.status().message());
  const std::string address = FlagOrEnvironment(
      absl::GetFlag(FLAGS_coordinator), "DJINN_COORDINATOR", "127.0.0.1:7070");
  const auto channel = MakeChannel(address, {*security, /*connection=*/0});
  if (!channel.ok()) return Refuse(channel.status().message());
  Client client(*channel, *token, output);
  const absl::Status status =
      ExplainTlsFailure(Run(command, *asked, &client), address, *security);
  if (status.ok()) return 0;
  std::fprintf(stderr, "djinnctl: %s: %s\n",
               absl::StatusCodeToString(status.code()).c_str(),
               std::string(status.message()).c_str());
  // A coordinator that answers says why.
  return ErrorReason(status).empty() || ErrorReason(status) == "TLS_HANDSHAKE"
             ? 3
             : 1;
}

}  // namespace
}  // namespace djinn::ctl

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(djinn::ctl::kUsage);
  return djinn::ctl::Main(absl::ParseCommandLine(argc, argv));
}
