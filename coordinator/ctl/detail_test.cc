#include "coordinator/ctl/detail.h"

#include "coordinator/ctl/parse_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(DetailTest, AQueueShowsWhatWaitsAndForWhat) {
  auto queue = Parse<v1::QueueInfo>(R"pb(
    tenant: "red"
    oldest_wait { seconds: 4 }
    first_place: 2
    line_length: 7
    waiting { reason: "NO_CAPACITY" count: 3 }
    standing {
      session_count: 4
      lease_count: 1
      waiting_count: 3
      weight: 2
      fair_share: 0.5
      device_time_share: 0.25
      used { device_time { seconds: 60 } }
    }
    cohort: "lab"
  )pb");
  EXPECT_EQ(Detail(queue),
            "queue             red\n"
            "state             active\n"
            "waiting           3\n"
            "waiting for       3 NO_CAPACITY\n"
            "oldest waits for  4.0s\n"
            "first in line     place 2 of 7\n"
            "sessions          4\n"
            "leases            1\n"
            "weight            2, 50.0% of those that have leases\n"
            "device time       60.0s, 25.0% of all tenants'\n"
            "cohort            lab\n"
            "weighted share    0\n");
  queue = Parse<v1::QueueInfo>(R"pb(
    tenant: "gone"
    stop {
      drain: true
      stop_time { seconds: 43200 }
    }
  )pb");
  EXPECT_EQ(
      Detail(queue),
      "queue             gone\n"
      "state             stopped since 1970-01-01T12:00:00+00:00, its leases "
      "end: no new leases\n"
      "waiting           0\n"
      "waiting for       -\n"
      "oldest waits for  -\n"
      "first in line     -\n");
}

TEST(DetailTest, ATenantShowsThatItsQueueIsStopped) {
  v1::TenantInfo info;
  EXPECT_THAT(Detail(info), HasSubstr("active\n"));
  info.mutable_queue_stop()->mutable_stop_time()->set_seconds(43200);
  EXPECT_THAT(
      Detail(info),
      HasSubstr("stopped since 1970-01-01T12:00:00+00:00: no new leases\n"));
}

TEST(DetailTest, AGraphShowsItsNodes) {
  const auto graph = Parse<v1::GraphInfo>(R"pb(
    fingerprint: "abcd"
    node_count: 2
    slot_count: 4
    definition_count: 1
    run_count: 12
    content_bytes: 90900000
    worker_ids: "w0"
    worker_ids: "w1"
    size_bytes: 1500
    nodes {
      operator_name: "aten::add_.Tensor"
      operands { slot: 0 data_type: DATA_TYPE_FLOAT32 sizes: 2 sizes: 3 }
      operands { slot: 1 data_type: DATA_TYPE_INT64 }
      written_slots: 0
    }
    nodes {
      operator_name: "aten::bernoulli"
      results { slot: 2 }
      generator_slot: 3
    }
    meaning {
      nodes {
        phase: PHASE_LLM_DECODE
        role: "mlp.up"
        cost { flops: 6 }
      }
      nodes {}
      stages {
        node_count: 2
        phase: PHASE_LLM_DECODE
        modality: MODALITY_TEXT
        cost { flops: 6 read_bytes: 24 }
      }
      workload_class: WORKLOAD_CLASS_TRANSFORMER
      phase: PHASE_LLM_DECODE
      modality: MODALITY_TEXT
      cost { flops: 1500000 read_bytes: 24 }
      peak_bytes: 4000
      batch { rows: 6 input_slots: 0 input_slots: 1 output_slots: 2 }
    }
  )pb");
  EXPECT_EQ(
      Detail(graph),
      "graph        abcd\n"
      "size         2 nodes, 4 slots, 1.5kB\n"
      "definitions  1\n"
      "runs         12\n"
      "contents     90.9MB\n"
      "workers      w0 w1\n"
      "workload     transformer\n"
      "task         -\n"
      "phase        llm_decode\n"
      "modality     text\n"
      "cost         1.5M flop, 24B read, 0B written\n"
      "memory       peak 4.0kB, weights 0B, kv caches 0B\n"
      "batch        6 rows, each by itself, of #0 #1 to #2\n"
      "\n"
      "STAGE  NODES  PHASE       MODALITY  FLOP  READ  WRITTEN  WEIGHTS  "
      "KV CACHES  FROM\n"
      "0      0..1   llm_decode  text      6     24B   0B       0B       "
      "0B         -\n"
      "\n"
      "NODE  OPERATOR           OPERANDS                    RESULTS     "
      "WRITES      PHASE       ROLE    FLOP\n"
      "0     aten::add_.Tensor  #0 float32[2,3] #1 int64[]  -           #0    "
      "      llm_decode  mlp.up  6\n"
      "1     aten::bernoulli    -                           #2 by data  #3 "
      "(draws)  -           -       0\n");
}

TEST(DetailTest, AGraphSaysWhatMixesItsRows) {
  v1::GraphInfo graph;
  graph.mutable_meaning()->mutable_batch()->set_problem("node 3 (aten::sum)");
  EXPECT_THAT(Detail(graph), HasSubstr("\nbatch        node 3 (aten::sum)\n"));
}

TEST(DetailTest, AMigrationIsALine) {
  const auto done = Parse<v1::MigrationInfo>(R"pb(
    from_worker_id: "w0"
    to_worker_id: "w1"
    reason: "drain"
    state: DONE
    storage_count: 7
    moved_bytes: 3000
    held_bytes: 2000000
    paused { nanos: 40000000 }
    age { seconds: 3 }
    terms {
      stay_seconds: 60
      go_seconds: 30.5
      state_bytes: 3000
      transfer_seconds: 3e-6
    }
  )pb");
  EXPECT_EQ(DescribeMigration(done),
            "3.0s ago by drain, from w0 to w1: 7 storages, 3.0kB moved, 2.0MB "
            "were there; calls waited for 0.04s; predicted 60s if it stays, "
            "30.5s if it migrates, of which 3e-06s to move 3.0kB");
  const auto failed = Parse<v1::MigrationInfo>(R"pb(
    from_worker_id: "w0"
    to_worker_id: "w1"
    reason: "operator"
    state: FAILED
    failure_reason: "SESSION_MEMORY"
    failure: "no room"
    age { seconds: 3 }
  )pb");
  EXPECT_EQ(DescribeMigration(failed),
            "3.0s ago by operator, from w0 to w1: it stays; SESSION_MEMORY: no "
            "room");
}

TEST(DetailTest, WhichDevicesGoAndWhyOthersStay) {
  const auto response = Parse<v1::MigrateSessionResponse>(R"pb(
    migrations { virtual_device: 0 from_worker_id: "w0" to_worker_id: "w1" }
    failures {
      virtual_device: 1
      reason: "SPANS_WORKERS"
      message: "the virtual device spans workers"
    }
  )pb");
  EXPECT_EQ(
      Detail(response),
      "DEVICE  FROM  TO\n"
      "0       w0    w1\n"
      "device 1 stays; SPANS_WORKERS: the virtual device spans workers\n");
}

TEST(DetailTest, ALeaseShowsItsUseAndLimits) {
  auto lease = Parse<v1::LeaseInfo>(R"pb(
    lease_id: "lease"
    state: IN_USE
    worker_id: "w0"
    incarnation: 255
    session_id: "0123abcd"
    session_epoch: 2
    placement_reason: "most of the bytes"
    age { seconds: 3 }
    use {
      contents { count: 1 size_bytes: 2000 }
      storages { count: 2 size_bytes: 3000 }
      generators { count: 1 size_bytes: 8 }
      caches { count: 1 size_bytes: 4000 }
      queued_runs: 4
      outstanding: 5
      outstanding_bytes: 600
      graph_count: 7
    }
    limits {
      memory_bytes: 1000000
      storage_bytes: 500000
      max_outstanding: 256
      max_outstanding_bytes: 64000
      max_graphs: 99
    }
    lease_use {
      device_time { seconds: 2 nanos: 500000000 }
      phases {
        phase: PHASE_LLM_DECODE
        device_time { seconds: 2 }
      }
      phases { device_time { nanos: 500000000 } }
      bytes: 3000
    }
    credits { device_time { seconds: 60 } }
    out_of_credit: true
  )pb");
  std::string text = Detail(lease);
  for (const char* line : {
           "state           IN_USE\n",
           "session         0123abcd, epoch 2\n",
           "worker          w0, incarnation ff\n",
           "age             3.0s\n",
           "device time     2.5s of 60.0s\n",
           "time by phase   llm_decode 2.000s, unknown 0.500s\n",
           "bytes moved     3.0kB\n",
           "runs wait for   credit\n",
           "why there       most of the bytes\n",
           "contents        1 storage, 2.0kB\n",
           "own storages    2 storages, 3.0kB\n",
           "caches          1 storage, 4.0kB\n",
           "generators      1 storage, 8B\n",
           "runs in flight  4\n",
           "memory          9.0kB of 1.0MB\n",
           "storage memory  7.0kB of 500.0kB\n",
           "outstanding     5 of 256 messages, 600B of 64.0kB\n",
           "graphs          7 of 99\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  // Caches with a limit of their own do not count as storage memory.
  lease.mutable_limits()->set_cache_bytes(6000);
  text = Detail(lease);
  EXPECT_THAT(text, HasSubstr("storage memory  3.0kB of 500.0kB\n"));
  EXPECT_THAT(text, HasSubstr("cache memory    4.0kB of 6.0kB\n"));
}

TEST(DetailTest, LostWorkerShowsNoMemory) {
  auto worker = Parse<v1::WorkerInfo>(R"pb(
    worker_id: "w0"
    state: ACTIVE
    memory_bytes: 4000
    memory {
      storage_bytes: 100
      content_bytes: 2000
      idle_content_bytes: 30
      transfer_bytes: 4
      cache_bytes: 60
    }
    plan_cache { entries: 1 size_bytes: 50 hits: 6 misses: 7 evictions: 8 }
    executed {
      runs: 1
      nodes: 2
      failed_nodes: 3
      skipped_nodes: 4
      device_time { seconds: 12 nanos: 301000000 }
      executor_time { seconds: 12 nanos: 310000000 }
      phases {
        phase: PHASE_TRAINING
        device_time { seconds: 12 nanos: 301000000 }
      }
    }
  )pb");
  EXPECT_THAT(Detail(worker), HasSubstr("contents        2.0kB, 30B of them"));
  EXPECT_THAT(Detail(worker),
              HasSubstr("storages        100B, 60B of them caches\n"));
  EXPECT_THAT(Detail(worker),
              HasSubstr("plan cache      1 plan, 50B, 6 hits, 7 misses, 8 "
                        "evicted\n"));
  EXPECT_THAT(Detail(worker),
              HasSubstr("1 runs, 2 nodes, 3 failed, 4 skipped\n"));
  EXPECT_THAT(Detail(worker),
              HasSubstr("device time     12.301s of 12.310s at work\n"
                        "time by phase   training 12.301s\n"));
  worker.set_state(v1::WorkerInfo::LOST);
  worker.clear_memory();
  EXPECT_THAT(Detail(worker), HasSubstr("LOST"));
  EXPECT_THAT(Detail(worker), Not(HasSubstr("contents")));
}

TEST(DetailTest, AWorkerShowsWhatItIsChosenFor) {
  auto worker = Parse<v1::WorkerInfo>(R"pb(
    worker_id: "w0"
    speed {
      flops_per_second: 1.5e12
      bytes_per_second: 2e11
      seconds_per_call: 5e-6
    }
    price_per_hour: 2.5
    link_bytes_per_second: 1250000000
    links { worker_id: "w1" bytes_per_second: 64000 }
    links { worker_id: "w2" bytes_per_second: 2000000 }
    capabilities: "big"
    capabilities: "bfloat16"
    phases: PHASE_LLM_DECODE
    cordoned: true
  )pb");
  for (const char* line :
       {"new leases      none: cordoned\n",
        "speed           1.5T flop/s, 200.0GB/s, 5.0us a call\n",
        "price           2.5 an hour\n", "link            1.2GB/s\n",
        "measured from   w1: 64.0kB/s, w2: 2.0MB/s\n",
        "capabilities    big bfloat16\n", "phases          llm_decode\n"}) {
    EXPECT_THAT(Detail(worker), HasSubstr(line));
  }
  worker.Clear();
  for (const char* line :
       {"speed           not known\n", "phases          all\n"}) {
    EXPECT_THAT(Detail(worker), HasSubstr(line));
  }
}

TEST(DetailTest, GraphsShowWhatWasSaidAboutTheirNodes) {
  const std::string text = Detail(Parse<v1::GraphInfo>(R"pb(
    nodes { operator_name: "aten::relu" }
    nodes {
      operator_name: "aten::mm"
      note {
        phase: PHASE_LLM_PREFILL
        module_path: "Net.fc1"
        location: "model.py:12 in forward"
      }
    }
  )pb"));
  EXPECT_THAT(text, HasSubstr("SAID         MODULE   CALLED AT\n"));
  EXPECT_THAT(text,
              HasSubstr("llm_prefill  Net.fc1  model.py:12 in forward\n"));
  EXPECT_THAT(Detail(Parse<v1::GraphInfo>(R"pb(nodes {
                                                 operator_name: "aten::relu"
                                               })pb")),
              Not(HasSubstr("SAID")));
}

TEST(DetailTest, SessionsAndTenantsShowUseAndLimits) {
  EXPECT_THAT(Detail(Parse<v1::SessionInfo>(R"pb(
                pending_virtual_devices: 3
                use { generators { count: 2 size_bytes: 16 } }
                limits { max_graphs: 5 }
              )pb")),
              AllOf(HasSubstr("devices without worker  3\n"),
                    HasSubstr("generators              2 storages, 16B\n"),
                    HasSubstr("graphs limit            5\n")));
  EXPECT_THAT(Detail(Parse<v1::TenantInfo>(R"pb(
                session_count: 1
                max_sessions: 64
                use { queued_runs: 9 }
                limits { memory_bytes: 16 }
                placement_policy: "load_balance"
                required_capabilities: "cuda"
              )pb")),
              AllOf(HasSubstr("placement          load_balance\n"),
                    HasSubstr("required           cuda\n"),
                    HasSubstr("sessions           1 of 64\n"),
                    HasSubstr("runs in flight     9\n"),
                    HasSubstr("memory limit       16B\n")));
  EXPECT_THAT(Detail(Parse<v1::TenantInfo>(R"pb(
                weight: 1.5
                max_priority_class: PRIORITY_CLASS_BATCH
                cohort: "lab"
                quotas {
                  resource: "memory_bytes"
                  nominal: 68719476736
                  used: 68719476737
                  borrowed: 1
                }
              )pb")),
              AllOf(HasSubstr("weight                 1.5\n"),
                    HasSubstr("priority at most       batch\n"),
                    HasSubstr("cohort                 lab\n"),
                    HasSubstr("quota of memory_bytes  68719476737 of "
                              "68719476736, 1 borrowed, 0 lent\n")));
}

TEST(DetailTest, ModelsAreNamedTheLargestFirst) {
  EXPECT_EQ(DescribeModels(v1::SessionUse()), "0 models, 0B");
  EXPECT_EQ(DescribeModels(Parse<v1::SessionUse>(R"pb(
              model_count: 5
              model_bytes: 15000
              refused_models: 1
              models { name: "a" size_bytes: 1000 }
              models { name: "b" size_bytes: 5000 }
              models { size_bytes: 4000 }
              models { name: "d" size_bytes: 3000 }
              models { name: "e" size_bytes: 2000 }
            )pb")),
            "5 models, 15.0kB: b 5.0kB, - 4.0kB, d 3.0kB, e 2.0kB, ...; "
            "refused 1 time");
}

TEST(DetailTest, ATenantShowsItsBudgetOfModels) {
  auto tenant = Parse<v1::TenantInfo>(R"pb(
    use {
      model_count: 1
      model_bytes: 500
      models { name: "Net" size_bytes: 500 }
    }
    max_models: 2
    model_bytes: 3000
  )pb");
  EXPECT_THAT(Detail(tenant),
              AllOf(HasSubstr("models             1 model, 500B: Net 500B\n"),
                    HasSubstr("models limit       2\n"),
                    HasSubstr("model bytes limit  3.0kB\n")));
  tenant.clear_max_models();
  tenant.set_model_bytes(0);
  EXPECT_THAT(Detail(tenant), AllOf(HasSubstr("models limit       none\n"),
                                    HasSubstr("model bytes limit  0B\n")));
}

TEST(DetailTest, ATenantShowsItsLimitOfNodes) {
  auto tenant = Parse<v1::TenantInfo>("node_limit { seconds: 90 }");
  EXPECT_THAT(Detail(tenant), HasSubstr("node limit         90.0s\n"));
  tenant.clear_node_limit();
  EXPECT_THAT(Detail(tenant), HasSubstr("node limit         the worker's\n"));
}

TEST(DetailTest, AWorkersDiskSaysWhatFailed) {
  v1::WorkerInfo info;
  info.mutable_memory();
  EXPECT_THAT(Detail(info), Not(HasSubstr("on disk")));
  v1::DiskUse* const disk = info.mutable_disk();
  disk->mutable_cache()->set_entries(3);
  disk->mutable_cache()->set_size_bytes(3000);
  disk->set_limit_bytes(5000);
  EXPECT_THAT(Detail(info), HasSubstr("3.0kB, 0 hits, 0 misses, 0 evicted, "
                                      "limit 5.0kB\n"));
  disk->set_failed_writes(2);
  disk->set_corrupt_files(1);
  disk->set_failure("no room");
  EXPECT_THAT(Detail(info), HasSubstr(", 2 not written, 1 broken: no room\n"));
}

}  // namespace
}  // namespace djinn::ctl
