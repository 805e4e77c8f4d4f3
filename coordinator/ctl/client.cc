#include "coordinator/ctl/client.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/config/config_reader.h"
#include "common/net/bearer.h"
#include "common/net/grpc_status.h"
#include "coordinator/ctl/bundle.h"
#include "coordinator/ctl/detail.h"
#include "coordinator/ctl/drawing.h"
#include "coordinator/ctl/explanation.h"
#include "coordinator/ctl/lineage.h"
#include "coordinator/ctl/output.h"
#include "coordinator/ctl/recording.h"
#include "coordinator/ctl/reports.h"
#include "coordinator/ctl/table.h"
#include "coordinator/ctl/tar.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "google/protobuf/message.h"

namespace djinn::ctl {
namespace {

using Stub = v1::Admin::StubInterface;

// Moves a terminal's cursor to the corner and clears the screen.
constexpr char kClear[] = "\x1b[H\x1b[2J";

template <typename Item>
Row HeaderFor(const Command& command, const Item& item) {
  Row row = Header(item);
  if (command.output != "wide") return row;
  const Row more = WideHeader(item);
  row.insert(row.end(), more.begin(), more.end());
  return row;
}

template <typename Item>
Row CellsFor(const Command& command, const Item& item) {
  Row row = Cells(item);
  if (command.output != "wide") return row;
  const Row more = WideCells(item);
  row.insert(row.end(), more.begin(), more.end());
  return row;
}

absl::StatusOr<v1::TryPlacementRequest> PlacementOf(const Command& command) {
  v1::TryPlacementRequest request;
  request.set_tenant(command.name);
  if (!command.size.empty()) {
    DJINN_ASSIGN_OR_RETURN(const uint64_t size, ParseSize(command.size));
    request.set_asked_bytes(size);
  }
  request.set_policy(command.policy);
  request.set_session_id(command.session);
  const std::string& name = command.phase;
  v1::Phase phase = v1::PHASE_UNSPECIFIED;
  if (!name.empty() &&
      !v1::Phase_Parse("PHASE_" + absl::AsciiStrToUpper(name), &phase)) {
    return absl::InvalidArgumentError("there is no phase \"" + name + "\"");
  }
  request.set_phase(phase);
  return request;
}

class Client {
 public:
  Client(const std::shared_ptr<grpc::Channel>& channel, std::string token,
         Terminal terminal)
      : stub_(v1::Admin::NewStub(channel)),
        token_(std::move(token)),
        terminal_(std::move(terminal)) {}

  absl::Status Run(const Command& command) {
    if (command.verb == "get") return Get(command);
    if (command.verb == "describe") return Describe(command);
    if (command.verb == "watch") return Watch(command);
    if (command.verb == "top") return Top(command);
    if (command.verb == "explain") return Explain(command);
    if (command.verb == "lineage") return Lineage(command);
    if (command.verb == "migrate") return Migrate(command);
    if (command.verb == "stop" || command.verb == "resume") {
      return Queue(command);
    }
    if (command.verb == "quota") {
      return command.kind == "set" ? SetQuota(command) : UnsetQuota(command);
    }
    if (command.verb == "reload") return Reload(command);
    if (command.verb == "record") return Record();
    if (command.verb == "version") return Version();
    if (command.verb == "bundle") return WriteBundle(command);
    if (command.verb == "cordon" || command.verb == "uncordon" ||
        command.verb == "drain") {
      return Cordon(command);
    }
    return absl::InternalError("no function for the verb \"" + command.verb +
                               "\"");
  }

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
  static absl::Status WithKind(const std::string& kind, Visitor visit) {
    if (kind == "worker") {
      return visit(Kind<v1::WorkerInfo, v1::ListWorkersRequest,
                        v1::ListWorkersResponse, v1::GetWorkerRequest>{
          &Stub::ListWorkers, &v1::ListWorkersResponse::workers,
          &Stub::GetWorker, [](const std::string& name, auto* get) {
            get->set_worker_id(name);
          }});
    }
    if (kind == "session") {
      return visit(Kind<v1::SessionInfo, v1::ListSessionsRequest,
                        v1::ListSessionsResponse, v1::GetSessionRequest>{
          &Stub::ListSessions, &v1::ListSessionsResponse::sessions,
          &Stub::GetSession, [](const std::string& name, auto* get) {
            get->set_session_id(name);
          }});
    }
    if (kind == "tenant") {
      return visit(Kind<v1::TenantInfo, v1::ListTenantsRequest,
                        v1::ListTenantsResponse, v1::GetTenantRequest>{
          &Stub::ListTenants, &v1::ListTenantsResponse::tenants,
          &Stub::GetTenant,
          [](const std::string& name, auto* get) { get->set_tenant(name); }});
    }
    if (kind == "queue") {
      return visit(Kind<v1::QueueInfo, v1::ListQueuesRequest,
                        v1::ListQueuesResponse, v1::GetQueueRequest>{
          &Stub::ListQueues, &v1::ListQueuesResponse::queues, &Stub::GetQueue,
          [](const std::string& name, auto* get) { get->set_tenant(name); }});
    }
    if (kind == "lease") {
      return visit(Kind<v1::LeaseInfo, v1::ListLeasesRequest,
                        v1::ListLeasesResponse, v1::GetLeaseRequest>{
          &Stub::ListLeases, &v1::ListLeasesResponse::leases, &Stub::GetLease,
          [](const std::string& name, auto* get) { get->set_lease_id(name); }});
    }
    if (kind == "graph") {
      return visit(Kind<v1::GraphInfo, v1::ListGraphsRequest,
                        v1::ListGraphsResponse, v1::GetGraphRequest>{
          &Stub::ListGraphs, &v1::ListGraphsResponse::graphs, &Stub::GetGraph,
          [](const std::string& name, auto* get) {
            get->set_fingerprint(name);
          }});
    }
    return absl::InternalError("no methods for the kind \"" + kind + "\"");
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

  // Returns all pages as one.
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

  // Prints the message as JSON or YAML if the command asks for that, otherwise
  // the text.
  void Print(const Command& command, const google::protobuf::Message& message,
             absl::string_view text) {
    if (command.output == "json") {
      terminal_.print(ToJson(message));
    } else if (command.output == "yaml") {
      terminal_.print(ToYaml(message));
    } else {
      terminal_.print(text);
    }
  }

  template <typename Item>
  absl::Status PrintOne(const Command& command, const Item& item) {
    Print(command, item,
          command.output == "wide"
              ? FormatTable({HeaderFor(command, item), CellsFor(command, item)})
              : Detail(item));
    return absl::OkStatus();
  }

  absl::Status PrintOne(const Command& command, const v1::GraphInfo& graph) {
    if (command.output != "dot") return PrintOne<v1::GraphInfo>(command, graph);
    DJINN_ASSIGN_OR_RETURN(const std::string text, ToDot(graph));
    terminal_.print(text);
    return absl::OkStatus();
  }

  absl::Status GetRuns(const Command& command) {
    v1::ListRunsRequest request;
    request.set_session_id(command.name);
    v1::ListRunsResponse runs;
    DJINN_RETURN_IF_ERROR(Call(&Stub::ListRuns, request, &runs));
    Print(command, runs, ShowRuns(runs));
    return absl::OkStatus();
  }

  absl::Status Get(const Command& command) {
    if (command.kind == "run") return GetRuns(command);
    return WithKind(command.kind, [&](const auto& kind) -> absl::Status {
      typename std::decay_t<decltype(kind)>::Item one;
      if (!command.name.empty()) {
        DJINN_RETURN_IF_ERROR(GetOne(kind, command.name, &one));
        return PrintOne(command, one);
      }
      DJINN_ASSIGN_OR_RETURN(const auto all, ListAll(kind.list));
      std::vector<Row> rows = {HeaderFor(command, one)};
      for (const auto& item : (all.*kind.items)()) {
        rows.push_back(CellsFor(command, item));
      }
      Print(command, all, FormatTable(rows));
      return absl::OkStatus();
    });
  }

  absl::Status Describe(const Command& command) {
    return WithKind(command.kind, [&](const auto& kind) -> absl::Status {
      typename std::decay_t<decltype(kind)>::Item one;
      DJINN_RETURN_IF_ERROR(GetOne(kind, command.name, &one));
      std::string text = Detail(one);
      if (command.kind == "session") {
        v1::SessionExplanation explanation;
        DJINN_ASSIGN_OR_RETURN(const std::string why,
                               ExplainSession(command.name, &explanation));
        absl::StrAppend(&text, "\n", why);
      } else if (command.kind == "tenant" || command.kind == "queue") {
        v1::TenantExplanation explanation;
        const absl::StatusOr<std::string> why =
            ExplainTenant(command.name, &explanation);
        // A stopped queue may belong to a tenant that is no longer configured.
        if (why.ok()) absl::StrAppend(&text, "\n", *why);
        if (!why.ok() && !absl::IsNotFound(why.status())) return why.status();
      }
      terminal_.print(text);
      return absl::OkStatus();
    });
  }

  absl::Status Watch(const Command& command) {
    for (int round = 0; command.count == 0 || round < command.count; ++round) {
      if (round > 0) terminal_.sleep(command.interval);
      if (terminal_.clears) {
        terminal_.print(kClear);
      } else if (round > 0) {
        terminal_.print("\n");
      }
      DJINN_RETURN_IF_ERROR(Get(command));
    }
    return absl::OkStatus();
  }

  absl::Status Top(const Command& command) {
    if (command.kind == "worker") {
      DJINN_ASSIGN_OR_RETURN(
          const auto workers,
          (ListAll<v1::ListWorkersRequest, v1::ListWorkersResponse>(
              &Stub::ListWorkers)));
      terminal_.print(TopWorkers(workers));
      return absl::OkStatus();
    }
    const Method<v1::ListTenantsRequest, v1::ListTenantsResponse> list =
        &Stub::ListTenants;
    DJINN_ASSIGN_OR_RETURN(const auto before, ListAll(list));
    terminal_.sleep(command.interval);
    DJINN_ASSIGN_OR_RETURN(const auto after, ListAll(list));
    terminal_.print(TopTenants(before, after, command.interval));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ExplainSession(const std::string& id,
                                             v1::SessionExplanation* out) {
    v1::ExplainSessionRequest request;
    request.set_session_id(id);
    DJINN_RETURN_IF_ERROR(Call(&Stub::ExplainSession, request, out));
    v1::GetSessionRequest get;
    get.set_session_id(id);
    v1::SessionInfo session;
    DJINN_RETURN_IF_ERROR(Call(&Stub::GetSession, get, &session));
    return ctl::Explain(*out, session);
  }

  absl::StatusOr<std::string> ExplainTenant(const std::string& name,
                                            v1::TenantExplanation* out) {
    v1::ExplainTenantRequest request;
    request.set_tenant(name);
    DJINN_RETURN_IF_ERROR(Call(&Stub::ExplainTenant, request, out));
    return ctl::Explain(*out);
  }

  absl::Status ExplainRun(const Command& command) {
    DJINN_ASSIGN_OR_RETURN(const v1::ExplainRunRequest request,
                           ParseRun(command.name));
    v1::RunExplanation explanation;
    DJINN_RETURN_IF_ERROR(Call(&Stub::ExplainRun, request, &explanation));
    Print(command, explanation, ctl::Explain(explanation));
    return absl::OkStatus();
  }

  absl::Status Explain(const Command& command) {
    if (command.kind == "placement") return TryPlacement(command);
    if (command.kind == "run") return ExplainRun(command);
    if (command.kind == "session") {
      v1::SessionExplanation explanation;
      DJINN_ASSIGN_OR_RETURN(const std::string text,
                             ExplainSession(command.name, &explanation));
      Print(command, explanation, text);
      return absl::OkStatus();
    }
    v1::TenantExplanation explanation;
    DJINN_ASSIGN_OR_RETURN(const std::string text,
                           ExplainTenant(command.name, &explanation));
    Print(command, explanation, text);
    return absl::OkStatus();
  }

  absl::Status Lineage(const Command& command) {
    DJINN_ASSIGN_OR_RETURN(const v1::GetLineageRequest request,
                           ParseLineage(command.kind, command.name));
    v1::SessionLineage lineage;
    DJINN_RETURN_IF_ERROR(Call(&Stub::GetLineage, request, &lineage));
    if (command.output == "dot") {
      terminal_.print(LineageToDot(lineage));
    } else {
      Print(command, lineage, ShowLineage(lineage));
    }
    return absl::OkStatus();
  }

  absl::Status TryPlacement(const Command& command) {
    DJINN_ASSIGN_OR_RETURN(const v1::TryPlacementRequest request,
                           PlacementOf(command));
    v1::TryPlacementResponse response;
    DJINN_RETURN_IF_ERROR(Call(&Stub::TryPlacement, request, &response));
    Print(command, response, ctl::Explain(response));
    return absl::OkStatus();
  }

  absl::Status Cordon(const Command& command) {
    v1::CordonWorkerRequest request;
    request.set_worker_id(command.name);
    request.set_cordoned(command.verb != "uncordon");
    request.set_drain(command.verb == "drain");
    v1::WorkerInfo info;
    DJINN_RETURN_IF_ERROR(Call(&Stub::CordonWorker, request, &info));
    return PrintOne(command, info);
  }

  absl::Status Migrate(const Command& command) {
    v1::MigrateSessionRequest request;
    request.set_session_id(command.name);
    request.set_to_worker_id(command.to);
    if (command.device.has_value()) request.set_virtual_device(*command.device);
    v1::MigrateSessionResponse response;
    DJINN_RETURN_IF_ERROR(Call(&Stub::MigrateSession, request, &response));
    Print(command, response, Detail(response));
    return absl::OkStatus();
  }

  absl::Status Queue(const Command& command) {
    v1::QueueInfo info;
    if (command.verb == "stop") {
      v1::StopQueueRequest request;
      request.set_tenant(command.name);
      request.set_drain(command.drain);
      DJINN_RETURN_IF_ERROR(Call(&Stub::StopQueue, request, &info));
    } else {
      v1::ResumeQueueRequest request;
      request.set_tenant(command.name);
      DJINN_RETURN_IF_ERROR(Call(&Stub::ResumeQueue, request, &info));
    }
    return PrintOne(command, info);
  }

  absl::Status SetQuota(const Command& command) {
    v1::GetTenantRequest get;
    get.set_tenant(command.name);
    v1::TenantInfo tenant;
    DJINN_RETURN_IF_ERROR(Call(&Stub::GetTenant, get, &tenant));
    DJINN_ASSIGN_OR_RETURN(const v1::SetQuotaRequest request,
                           QuotaToSet(command, tenant));
    if (!command.dry_run) {
      DJINN_RETURN_IF_ERROR(Call(&Stub::SetQuota, request, &tenant));
      return PrintOne(command, tenant);
    }
    absl::string_view between = "";
    for (const v1::TryQuotaRequest& one : QuotasToTry(request)) {
      v1::TryQuotaResponse response;
      DJINN_RETURN_IF_ERROR(Call(&Stub::TryQuota, one, &response));
      terminal_.print(std::exchange(between, "\n"));
      Print(command, response, Report(one, response));
    }
    return absl::OkStatus();
  }

  absl::Status UnsetQuota(const Command& command) {
    v1::UnsetQuotaRequest request;
    request.set_tenant(command.name);
    request.mutable_resources()->Assign(command.words.begin(),
                                        command.words.end());
    v1::TenantInfo tenant;
    DJINN_RETURN_IF_ERROR(Call(&Stub::UnsetQuota, request, &tenant));
    return PrintOne(command, tenant);
  }

  absl::Status Reload(const Command& command) {
    v1::ReloadConfigResponse changes;
    DJINN_RETURN_IF_ERROR(
        Call(&Stub::ReloadConfig, v1::ReloadConfigRequest(), &changes));
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
                      "\nnot reloaded; takes effect when the coordinator "
                      "restarts: ",
                      absl::StrJoin(changes.pending_settings(), " "), "\n");
    }
    Print(command, changes, text);
    return absl::OkStatus();
  }

  absl::Status Record() {
    DJINN_ASSIGN_OR_RETURN(
        const auto workers,
        (ListAll<v1::ListWorkersRequest, v1::ListWorkersResponse>(
            &Stub::ListWorkers)));
    DJINN_ASSIGN_OR_RETURN(
        const auto tenants,
        (ListAll<v1::ListTenantsRequest, v1::ListTenantsResponse>(
            &Stub::ListTenants)));
    DJINN_ASSIGN_OR_RETURN(
        const auto jobs,
        (ListAll<v1::ListRecordedJobsRequest, v1::ListRecordedJobsResponse>(
            &Stub::ListRecordedJobs)));
    terminal_.print(
        TraceOf({workers.workers().begin(), workers.workers().end()},
                {tenants.tenants().begin(), tenants.tenants().end()},
                {jobs.jobs().begin(), jobs.jobs().end()}));
    return absl::OkStatus();
  }

  // Adds all objects of a kind.
  void AddObjects(const std::string& kind, Bundle* bundle) {
    const absl::Status status = WithKind(kind, [&](const auto& one) {
      const auto all = ListAll(one.list);
      if (all.ok()) bundle->Add("state/" + kind + "s.json", ToJson(*all));
      return all.status();
    });
    if (!status.ok()) bundle->Miss("state of " + kind + "s", status.message());
  }

  // Writes as much as can be had. A coordinator that is away is no error.
  absl::Status WriteBundle(const Command& command) {
    Bundle bundle(token_);
    v1::VersionInfo info;
    const absl::Status asked =
        Call(&Stub::GetVersion, v1::GetVersionRequest(), &info);
    bundle.Add("versions.txt",
               absl::StrCat("djinnctl     ", kVersion, "\ncoordinator  ",
                            asked.ok() ? info.version() : "-", "\n"));
    if (asked.ok()) {
      for (const char* const kind :
           {"worker", "session", "tenant", "queue", "lease", "graph"}) {
        AddObjects(kind, &bundle);
      }
    } else {
      bundle.Miss("state of the cluster", asked.message());
    }
    for (const std::string& path : command.configs) bundle.AddConfig(path);
    for (const std::string& path : command.logs) bundle.AddLog(path);
    for (const std::string& address : command.monitoring) {
      bundle.AddMonitoring(address);
    }
    const std::vector<ArchivedFile> files = bundle.Finish();
    DJINN_RETURN_IF_ERROR(
        WriteArchive(command.name, TarOf(files, absl::Now()), command.force));
    for (const ArchivedFile& file : files) {
      terminal_.print(absl::StrCat(file.name, "\n"));
    }
    if (!bundle.missing().empty()) {
      terminal_.print(absl::StrCat("\nmissing:\n", bundle.missing()));
    }
    return absl::OkStatus();
  }

  absl::Status Version() {
    v1::VersionInfo info;
    DJINN_RETURN_IF_ERROR(
        Call(&Stub::GetVersion, v1::GetVersionRequest(), &info));
    terminal_.print(absl::StrCat("coordinator  ", info.version(), "\n"));
    if (info.follows()) {
      terminal_.print(absl::StrCat("follows      ",
                                   info.leader_address().empty()
                                       ? "nobody: there is no leader"
                                       : info.leader_address(),
                                   "\n"));
    } else if (info.term() > 0) {
      terminal_.print(absl::StrCat("leads        in term ", info.term(), "\n"));
    }
    return absl::OkStatus();
  }

  template <typename KindType>
  absl::Status GetOne(const KindType& kind, const std::string& name,
                      typename KindType::Item* out) {
    typename KindType::GetRequest request;
    kind.name(name, &request);
    return Call(kind.get, request, out);
  }

  const std::unique_ptr<v1::Admin::StubInterface> stub_;
  const std::string token_;
  const Terminal terminal_;
};

}  // namespace

absl::Status RunCommand(const Command& command,
                        const std::shared_ptr<grpc::Channel>& channel,
                        std::string token, Terminal terminal) {
  return Client(channel, std::move(token), std::move(terminal)).Run(command);
}

}  // namespace djinn::ctl
