// Compares what the analysis finds with labels: precision and recall of each
// label.
//
// usage: score [--verbose] [--least_pattern=SHARE] [--least_modality=SHARE]
//              [--least_phase=SHARE] [--least_label=SHARE]
//              [--least_by_label=KIND/LABEL=SHARE,...] FILE...
//
// Both precision and recall must reach a share. --least_label applies to labels
// of at least 50 nodes, except labels that --least_by_label names.
//
// Each file has the graphs of one program, as tests/semantics/capture.py writes
// them; files whose name has "held_out" before the program's name are counted
// separately. The notes of the graphs hold the labels, which the analysis does
// not see.
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/srg/proto_codec.h"
#include "djinn/v1/admin.pb.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/semantics/analysis/program.h"

ABSL_FLAG(bool, verbose, false, "Print every node that differs.");
ABSL_FLAG(double, least_pattern, 0,
          "Fail when the patterns' precision or recall is below this share.");
ABSL_FLAG(double, least_modality, 0,
          "Fail when the modalities' precision or recall is below this share.");
ABSL_FLAG(double, least_phase, 0,
          "Fail when the phases' precision or recall is below this share.");
ABSL_FLAG(double, least_label, 0,
          "Fail when the precision or recall of a label with enough nodes is "
          "below this share.");
ABSL_FLAG(std::vector<std::string>, least_by_label, {},
          "Other shares for single labels: \"pattern/mlp=0.8\".");

namespace djinn {
namespace {

// With fewer nodes, a single node is a large share.
constexpr int kEnoughNodes = 50;

struct Count {
  int right = 0, found = 0, labelled = 0;

  Count& operator+=(const Count& other) {
    right += other.right;
    found += other.found;
    labelled += other.labelled;
    return *this;
  }
};

constexpr const char* kPhases[] = {
    "unspecified",     "forward",         "llm_prefill",       "llm_decode",
    "vision_encoding", "vision_decoding", "multimodal_fusion", "training"};
constexpr const char* kModalities[] = {"unspecified", "text", "vision", "audio",
                                       "fusion"};

// Keyed by kind and label.
using Counts = std::map<std::pair<std::string, std::string>, Count>;

void Compare(const std::string& kind, const std::string& label,
             const std::string& found, Counts* counts) {
  if (label == "?") return;
  ++(*counts)[{kind, label}].labelled;
  ++(*counts)[{kind, found}].found;
  if (label == found) ++(*counts)[{kind, label}].right;
}

std::string Role(const semantics::Meaning& meaning, int node) {
  const int region = meaning.nodes[node].region;
  return region < 0 ? "none" : meaning.regions[region].pattern;
}

void ScoreGraph(const v1::GraphInfo& info, const semantics::Meaning& meaning,
                const std::string& program, Counts* counts) {
  for (int i = 0; i < info.nodes_size(); ++i) {
    const v1::CallNote& note = info.nodes(i).note();
    std::vector<std::string> labels = absl::StrSplit(note.module_path(), '/');
    labels.resize(3, "?");
    if (absl::StartsWith(note.location(), "the backward of")) {
      labels[0] = "backward";
      labels[2] = "training";
    }
    const std::string found[] = {
        Role(meaning, i),
        kModalities[static_cast<int>(meaning.nodes[i].modality)],
        kPhases[static_cast<int>(meaning.nodes[i].phase)]};
    const char* kKinds[] = {"pattern", "modality", "phase"};
    for (int k = 0; k < 3; ++k) {
      if (labels[k].empty()) labels[k] = "?";
      Compare(kKinds[k], labels[k], found[k], counts);
      if (absl::GetFlag(FLAGS_verbose) && labels[k] != "?" &&
          labels[k] != found[k]) {
        std::printf("%s %.8s %d %s: %s %s, found %s\n", program.c_str(),
                    info.fingerprint().c_str(), i,
                    info.nodes(i).operator_name().c_str(), kKinds[k],
                    labels[k].c_str(), found[k].c_str());
      }
    }
  }
}

double Share(int part, int whole) {
  return whole == 0 ? 1 : 1.0 * part / whole;
}

double Least(const std::string& kind) {
  if (kind == "pattern") return absl::GetFlag(FLAGS_least_pattern);
  if (kind == "modality") return absl::GetFlag(FLAGS_least_modality);
  return absl::GetFlag(FLAGS_least_phase);
}

// Reads entries "kind/label". Returns false when the flag cannot be read.
bool ReadLeastByLabel(std::map<std::string, double>* least) {
  for (const std::string& entry : absl::GetFlag(FLAGS_least_by_label)) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    double share = 0;
    if (!absl::SimpleAtod(parts.second, &share)) return false;
    (*least)[parts.first] = share;
  }
  return true;
}

// Returns whether the totals of every kind, and every label, reach their
// required shares.
bool Print(const char* title, const Counts& counts,
           const std::map<std::string, double>& least_by_label) {
  std::printf("\n%s\n%-10s %-18s %7s %7s %9s %9s\n", title, "KIND", "LABEL",
              "NODES", "FOUND", "PRECISION", "RECALL");
  std::map<std::string, Count> totals;
  bool reached = true;
  for (const auto& [key, count] : counts) {
    const bool none = key.second == "none" || key.second == "unspecified";
    if (!none) totals[key.first] += count;
    const double precision = Share(count.right, count.found);
    const double recall = Share(count.right, count.labelled);
    double least = 0;
    const auto own = least_by_label.find(key.first + "/" + key.second);
    if (own != least_by_label.end()) {
      least = own->second;
    } else if (!none && count.labelled >= kEnoughNodes) {
      least = absl::GetFlag(FLAGS_least_label);
    }
    const bool low = precision < least || recall < least;
    reached = reached && !low;
    std::printf("%-10s %-18s %7d %7d %8.1f%% %8.1f%%", key.first.c_str(),
                key.second.c_str(), count.labelled, count.found,
                100 * precision, 100 * recall);
    if (low) std::printf("  below %.1f%%", 100 * least);
    std::printf("\n");
  }
  for (const auto& [name, share] : least_by_label) {
    const std::pair<std::string, std::string> key = absl::StrSplit(name, '/');
    if (counts.contains(key)) continue;
    std::printf("%s: no such label\n", name.c_str());
    reached = false;
  }
  for (const auto& [kind, count] : totals) {
    const double precision = Share(count.right, count.found);
    const double recall = Share(count.right, count.labelled);
    std::printf("%-10s %-18s %7d %7d %8.1f%% %8.1f%%\n", kind.c_str(), "TOTAL",
                count.labelled, count.found, 100 * precision, 100 * recall);
    const double least = Least(kind);
    reached = reached && precision >= least && recall >= least;
  }
  return reached;
}

int Main(const std::vector<char*>& arguments) {
  std::map<std::string, double> least_by_label;
  if (!ReadLeastByLabel(&least_by_label)) {
    std::fprintf(stderr, "--least_by_label: KIND/LABEL=SHARE is expected\n");
    return 1;
  }
  Counts tuned, held_out;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string path = arguments[i];
    const std::string program(path.substr(path.rfind('/') + 1));
    std::ifstream file(path);
    std::string line;
    semantics::Program whole;
    std::vector<v1::GraphInfo> infos;
    std::map<std::string, semantics::Program::Finding> findings;
    Counts counts;
    while (std::getline(file, line)) {
      v1::GraphInfo info;
      const auto status =
          google::protobuf::util::JsonStringToMessage(line, &info);
      if (!status.ok()) {
        std::fprintf(stderr, "%s: %s\n", path.c_str(),
                     status.ToString().c_str());
        return 1;
      }
      auto graph = srg::FromProto(info.graph());
      if (!graph.ok()) {
        std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
        return 1;
      }
      for (auto& finding :
           whole.Add(info.fingerprint(),
                     std::make_shared<srg::Graph>(*std::move(graph)),
                     info.graph().ByteSizeLong())) {
        std::string name = finding.name;
        findings.insert_or_assign(std::move(name), std::move(finding));
      }
      infos.push_back(std::move(info));
    }
    for (const v1::GraphInfo& info : infos) {
      ScoreGraph(info, findings.at(info.fingerprint()).meaning, program,
                 &counts);
    }
    Counts& total = absl::StartsWith(program, "held_out") ? held_out : tuned;
    for (const auto& [key, count] : counts) total[key] += count;
    std::printf("%-34s", program.c_str());
    for (const char* const kind : {"pattern", "modality", "phase"}) {
      int right = 0, all = 0;
      for (const auto& [key, count] : counts) {
        if (key.first != kind) continue;
        right += count.right;
        all += count.labelled;
      }
      std::printf("  %s %5.1f%% of %5d", kind, 100 * Share(right, all), all);
    }
    std::printf("\n");
  }
  bool reached = true;
  if (!tuned.empty())
    reached &= Print("Families tuned on", tuned, least_by_label);
  if (!held_out.empty())
    reached &= Print("Families held out", held_out, least_by_label);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace djinn

int main(int argc, char** argv) {
  return djinn::Main(absl::ParseCommandLine(argc, argv));
}
