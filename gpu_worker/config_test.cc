#include "gpu_worker/config.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { std::ofstream(testing::TempDir() + "join") << "join-token\n"; }

  // Reads a configuration file with this device.
  absl::StatusOr<WorkerConfig> Read(const std::string& device) {
    return ReadWorkerConfig(
        ConfigReader::FromText("worker_id: w0\n"
                               "coordinator: 127.0.0.1:7070\n"
                               "join_token_file: join\n"
                               "device: " +
                                   device + "\n",
                               "w.yaml", testing::TempDir()));
  }
  std::string Complaint(const std::string& device) {
    return std::string(Read(device).status().message());
  }
};

TEST_F(ConfigTest, ContentsAreKeptOnDiskWhereItSaysSo) {
  EXPECT_EQ(Read("{}")->content_disk_directory, "");
  const absl::StatusOr<WorkerConfig> config =
      Read("{}\ncontent_disk: {directory: kept, limit: 2GiB}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->content_disk_directory.front(), '/');
  EXPECT_EQ(config->content_disk_limit, uint64_t{2} << 30);
  EXPECT_THAT(Complaint("{}\ncontent_disk: {directory: kept}"),
              HasSubstr("a limit above 0"));
  EXPECT_THAT(Complaint("{}\ncontent_disk: {limit: 2GiB}"),
              HasSubstr("needs a directory"));
}

TEST_F(ConfigTest, EveryAddressOfACoordinatorIsChecked) {
  const auto read = [](const std::string& coordinator) {
    return ReadWorkerConfig(ConfigReader::FromText(
        "worker_id: w0\njoin_token_file: join\ncoordinator: \"" + coordinator +
            "\"\n",
        "w.yaml", testing::TempDir()));
  };
  const auto config = read("127.0.0.1:1, unix:/run/c.sock");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->coordinator, "127.0.0.1:1, unix:/run/c.sock");
  EXPECT_THAT(std::string(read("127.0.0.1:1,").status().message()),
              HasSubstr("coordinator: "));
  EXPECT_THAT(std::string(read("127.0.0.1:1,10.0.0.1:1").status().message()),
              HasSubstr("10.0.0.1:1"));
}

TEST_F(ConfigTest, BothSocketsPathsFit) {
  const std::string longest = "/" + std::string(101, 's');
  const absl::StatusOr<WorkerConfig> config =
      Read("{}\nshared_memory_socket: " + longest);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->shared_memory_socket, longest);
  EXPECT_THAT(Complaint("{}\nshared_memory_socket: " + longest + "s"),
              HasSubstr("shared_memory_socket: at most 102 characters"));
}

TEST_F(ConfigTest, WeightsArePackedUnlessItSaysNot) {
  absl::StatusOr<WorkerConfig> config = Read("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->packed_weights);
  EXPECT_EQ(config->packed_weight_memory, 0u);
  config = Read("{packed_weights: false}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->packed_weights);
}

TEST_F(ConfigTest, AttentionIsFusedUnlessItSaysNot) {
  EXPECT_TRUE(Read("{}")->fuse_attention);
  EXPECT_FALSE(Read("{fuse_attention: false}")->fuse_attention);
  EXPECT_THAT(Complaint("{fuse_attention: often}"),
              HasSubstr("device.fuse_attention"));
}

TEST_F(ConfigTest, GpusNeedTwoGibibytesUnlessItSaysNot) {
  EXPECT_EQ(Read("{}")->min_free_bytes, 0u);
  EXPECT_EQ(Read("{kind: \"cuda:0\"}")->min_free_bytes, uint64_t{2} << 30);
  EXPECT_EQ(Read("{kind: \"cuda:0\", min_free: 0}")->min_free_bytes, 0u);
  EXPECT_EQ(Read("{min_free: 1GiB}")->min_free_bytes, uint64_t{1} << 30);
  EXPECT_EQ(Read("{}\ndrain_timeout: 1m")->drain_timeout, absl::Minutes(1));
}

TEST_F(ConfigTest, TheLongestCallIsPositiveAndOfCpuDevices) {
  EXPECT_EQ(Read("{}")->longest_call, absl::Minutes(1));
  EXPECT_EQ(Read("{longest_call: 5s}")->longest_call, absl::Seconds(5));
  EXPECT_THAT(Complaint("{longest_call: 0s}"),
              HasSubstr("longest_call: above 0"));
  EXPECT_THAT(Complaint("{kind: \"cuda:0\", longest_call: 5s}"),
              HasSubstr("longest_call: of cpu devices alone"));
}

TEST_F(ConfigTest, GraphsAreOfCudaDevices) {
  EXPECT_TRUE(Read("{}")->graphs);
  EXPECT_FALSE(Read("{kind: \"cuda:0\", graphs: false}")->graphs);
  EXPECT_THAT(Complaint("{graphs: false}"), HasSubstr("cuda devices"));
}

TEST_F(ConfigTest, RunsShareProductsUnlessItSaysNot) {
  EXPECT_EQ(Read("{}")->max_batch_runs, 16u);
  EXPECT_EQ(Read("{}\nmax_batch_runs: 1")->max_batch_runs, 1u);
  EXPECT_THAT(Complaint("{}\nmax_batch_runs: 0"), HasSubstr("max_batch_runs"));
  EXPECT_THAT(Complaint("{}\nmax_batch_runs: 65"), HasSubstr("max_batch_runs"));
}

TEST_F(ConfigTest, TokensFirstIsOnByDefault) {
  EXPECT_TRUE(Read("{}")->tokens_first);
  EXPECT_FALSE(Read("{}\ntokens_first: false")->tokens_first);
  EXPECT_THAT(Complaint("{}\ntokens_first: often"), HasSubstr("tokens_first"));
}

TEST_F(ConfigTest, PackedWeightsLieWithinTheMemory) {
  const absl::StatusOr<WorkerConfig> config =
      Read("{memory: 1GiB, packed_weight_memory: 1GiB}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->packed_weight_memory, uint64_t{1} << 30);
  EXPECT_THAT(Complaint("{memory: 1GiB, packed_weight_memory: 2GiB}"),
              HasSubstr("packed_weight_memory: at most memory"));
  EXPECT_THAT(Complaint("{packed_weights: often}"),
              HasSubstr("device.packed_weights"));
}

TEST_F(ConfigTest, SaysWhatThePlacementWeighs) {
  absl::StatusOr<WorkerConfig> config = Read(
      "{calibrate: false}\nprice_per_hour: 2.5\nlink_bandwidth: 1.25GB\n"
      "capabilities: [bfloat16, big]\nphases: [llm_decode, training]");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->calibrate);
  EXPECT_EQ(config->price_per_hour, 2.5);
  EXPECT_EQ(config->link_bandwidth, 1'250'000'000u);
  EXPECT_THAT(config->capabilities, ElementsAre("bfloat16", "big"));
  EXPECT_THAT(config->phases,
              ElementsAre(v1::PHASE_LLM_DECODE, v1::PHASE_TRAINING));
  EXPECT_THAT(Complaint("{}\nphases: [decode]"),
              HasSubstr("phases: there is no phase \"decode\""));
  EXPECT_THAT(Complaint("{}\nphases: [unspecified]"),
              HasSubstr("there is no phase"));
  EXPECT_THAT(Complaint("{}\nprice_per_hour: -1"), HasSubstr("price_per_hour"));
}

TEST_F(ConfigTest, ASpeedThatIsGivenIsNotMeasured) {
  absl::StatusOr<WorkerConfig> config = Read(
      "{speed: {flops_per_second: 6e13, bytes_per_second: 9e11,"
      " seconds_per_call: 5us}}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->calibrate);
  EXPECT_EQ(config->speed.flops_per_second(), 6e13);
  EXPECT_EQ(config->speed.bytes_per_second(), 9e11);
  EXPECT_EQ(config->speed.seconds_per_call(), 5e-6);
  EXPECT_THAT(Complaint("{speed: {flops_per_second: 6e13}}"),
              HasSubstr("bytes_per_second: a positive number is required"));
  EXPECT_THAT(Complaint("{calibrate: true,"
                        " speed: {flops_per_second: 1, bytes_per_second: 1}}"),
              HasSubstr("calibrate: not where speed is given"));
}

TEST_F(ConfigTest, ACudaDeviceHasANumberAndAPlugIn) {
  absl::StatusOr<WorkerConfig> config = Read("{kind: \"cuda:3\"}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->device_kind, "cuda");
  EXPECT_EQ(config->device_ordinal, 3);
  // 0 means that the device determines it.
  EXPECT_EQ(config->device_memory, 0u);
  EXPECT_EQ(config->device_plugin, "");
  EXPECT_EQ(config->nvml_library, "libnvidia-ml.so.1");
  config = Read(
      "{kind: cuda:0, memory: 70GiB, plugin: some.so, "
      "graph_memory: 2GiB}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->device_ordinal, 0);
  EXPECT_EQ(config->device_memory, uint64_t{70} << 30);
  EXPECT_EQ(config->device_plugin.front(), '/');
  EXPECT_EQ(config->graph_memory, uint64_t{2} << 30);
  for (const char* kind : {"cuda:", "cuda:x", "cuda:-1", "tpu"}) {
    EXPECT_THAT(Complaint(std::string("{kind: \"") + kind + "\"}"),
                HasSubstr("cuda:N with a device's number"))
        << kind;
  }
  EXPECT_THAT(Complaint("{graph_memory: 1GiB}"), HasSubstr("cuda devices"));
}

TEST_F(ConfigTest, WithoutANumberAllGpusAreMeant) {
  const absl::StatusOr<WorkerConfig> config = Read("{kind: cuda}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->all_gpus);
  EXPECT_EQ(config->device_kind, "cuda");
  EXPECT_FALSE(Read("{kind: cuda:0}")->all_gpus);
  EXPECT_THAT(Complaint("{kind: cuda, nvml_library: \"\"}"),
              HasSubstr("is what lists the GPUs"));
  EXPECT_THAT(Complaint("{kind: fake:all}"),
              HasSubstr("is what lists the GPUs"));
  EXPECT_EQ(Read("{kind: fake:all, nvml_library: some.so}")->device_kind,
            "fake");
  EXPECT_THAT(Complaint("{kind: cpu, nvml_library: some.so}"),
              HasSubstr("nvml_library: of cuda devices alone"));
}

TEST_F(ConfigTest, LocalTenantsShareAProcessUnlessItSaysNot) {
  EXPECT_FALSE(Read("{}")->isolated);
  EXPECT_FALSE(Read("{}\nisolation: {mode: shared}")->isolated);
  const absl::StatusOr<WorkerConfig> config = Read(
      "{}\nisolation: {mode: process, executors: 8, node_limit: 10s, "
      "ports: 7100-7110}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->isolated);
  EXPECT_EQ(config->executors, 8u);
  EXPECT_EQ(config->node_limit, absl::Seconds(10));
  EXPECT_EQ(config->first_executor_port, 7100);
  EXPECT_EQ(config->last_executor_port, 7110);
}

TEST_F(ConfigTest, TenantsOfOtherHostsHaveProcessesUnlessItSaysShared) {
  const std::string off = "{}\ninsecure: true\nlisten: ";
  for (const char* const local :
       {"127.0.0.1:0", "\"[::1]:0\"", "localhost:7", "unix:w.sock"}) {
    EXPECT_FALSE(Read(off + local)->isolated) << local;
  }
  for (const char* const other :
       {"0.0.0.0:7072", "\"[::]:7072\"", "10.0.0.7:0", "gpu7:7072"}) {
    EXPECT_TRUE(Read(off + other)->isolated) << other;
    EXPECT_FALSE(Read(off + other + "\nisolation: {mode: shared}")->isolated)
        << other;
    EXPECT_EQ(Read(off + other + "\nisolation: {executors: 2}")->executors, 2u);
  }
}

TEST_F(ConfigTest, GpusHaveProcessesOnlyWhereItSaysSo) {
  const std::string process = "\nisolation: {mode: process}";
  for (const char* const kind : {"cuda", "cuda:1"}) {
    const std::string device = absl::StrCat("{kind: ", kind);
    const auto config = Read(device + ", memory: 64GiB}" + process);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(config->isolated);
    EXPECT_THAT(Complaint(device + "}" + process),
                HasSubstr("device.memory: required for a cuda device"));
    EXPECT_FALSE(Read(device + ", memory: 64GiB}")->isolated);
  }
  EXPECT_TRUE(
      Read("{kind: fake:all, nvml_library: some.so}" + process)->isolated);
}

TEST_F(ConfigTest, GpuWorkersOffLoopbackMustSayTheMode) {
  const std::string rest = "\ninsecure: true\nlisten: 0.0.0.0:7072";
  EXPECT_THAT(Complaint("{kind: cuda:0, memory: 64GiB}" + rest),
              AllOf(HasSubstr("isolation.mode"), HasSubstr("Say shared"),
                    HasSubstr("or process, which is experimental")));
  EXPECT_TRUE(Read("{kind: cuda:0, memory: 64GiB}" + rest +
                   "\nisolation: {mode: process}")
                  ->isolated);
  const std::string shared = rest + "\nisolation: {mode: shared}";
  EXPECT_TRUE(Read("{kind: cuda:0}" + shared).ok());
  EXPECT_TRUE(Read("{kind: cuda:0}").ok());
}

TEST_F(ConfigTest, ProcessesKeepContentsToo) {
  const auto config = Read(
      "{}\ninsecure: true\nlisten: 0.0.0.0:7072"
      "\nisolation: {content_memory: 3GiB}"
      "\ncontent_disk: {directory: kept, limit: 2GiB}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->isolated);
  EXPECT_EQ(config->content_memory, uint64_t{3} << 30);
  EXPECT_EQ(config->content_disk_limit, uint64_t{2} << 30);
  EXPECT_EQ(Read("{}\nisolation: {mode: process}")->content_memory, 0u);
}

TEST_F(ConfigTest, ProcessesWithUnixSocketsKeepNoContents) {
  const std::string process = "{}\nisolation: {mode: process";
  const std::string memory = process + ", content_memory: 1GiB}";
  const std::string disk =
      process + "}\ncontent_disk: {directory: kept, limit: 2GiB}";
  // A relative path could be too long behind the test's folder.
  const std::string near = "\nshared_memory_socket: /tmp/w.shm";
  const std::string local = "\nlisten: unix:w.sock";
  EXPECT_THAT(Complaint(memory + near),
              AllOf(HasSubstr("isolation.content_memory: not beside"),
                    HasSubstr("shared_memory_socket")));
  EXPECT_THAT(Complaint(disk + near),
              AllOf(HasSubstr("content_disk: not beside"),
                    HasSubstr("shared_memory_socket")));
  EXPECT_THAT(Complaint(memory + local),
              HasSubstr("isolation.content_memory: not beside a Unix socket "
                        "in listen"));
  EXPECT_THAT(
      Complaint(disk + local + near),
      HasSubstr("not beside a Unix socket in listen and shared_memory_socket"));
  EXPECT_TRUE(Read(process + "}" + near + local).ok());
  // Tenants that share a process have no descriptors of contents.
  EXPECT_TRUE(
      Read("{}\ncontent_disk: {directory: kept, limit: 2GiB}" + near + local)
          .ok());
}

TEST_F(ConfigTest, IsolationSaysWhatIsWrong) {
  EXPECT_THAT(Complaint("{}\nisolation: {mode: none}"),
              HasSubstr("shared or process"));
  EXPECT_THAT(Complaint("{}\nisolation: {executors: 2}"),
              HasSubstr("needs mode: process"));
  for (const char* const ports : {"7100", "7100-", "0-7", "9-8", "1-99999"}) {
    EXPECT_THAT(Complaint(std::string("{}\nisolation: {mode: process") +
                          ", ports: " + ports + "}"),
                HasSubstr("two ports"))
        << ports;
  }
  EXPECT_THAT(
      Complaint("{}\nisolation: {mode: process, executors: 4, ports: 7-10}"),
      HasSubstr("at least one more than executors"));
  EXPECT_THAT(Complaint("{}\nisolation: {mode: process, node_limit: 1s}"),
              HasSubstr("at least 5s"));
  EXPECT_THAT(Complaint("{}\nisolation: {mode: shared, content_memory: 1GiB}"),
              HasSubstr("needs mode: process"));
}

}  // namespace
}  // namespace djinn::worker
