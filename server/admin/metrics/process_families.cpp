#include "server/admin/metrics/families.hpp"

namespace gpunbd::server {

namespace {

// By the names that all of Prometheus's own clients have.
void add_customary(Exposition& out, const ProcessStatus& process) {
    out.family(
        {"process_cpu_seconds", MetricType::counter, "CPU time used, in user and system mode."});
    out.add({}, process.cpu_seconds);
    out.family({"process_resident_memory_bytes", MetricType::gauge, "Memory that is resident."});
    out.add({}, process.resident);
    out.family({"process_open_fds", MetricType::gauge, "Open file descriptors."});
    out.add({}, process.open_files);
    out.family({"process_max_fds", MetricType::gauge, "Most file descriptors that may be open."});
    out.add({}, process.max_open_files);
    out.family(
        {"process_start_time_seconds", MetricType::gauge, "When the process started, since 1970."});
    out.add({}, process.started);
}

void add_own(Exposition& out, const ProcessStatus& process) {
    out.family(
        {"gpunbd_build", MetricType::info, "The version of the server and how it was built."});
    out.add({{"version", process.version}, {"commit", process.commit}, {"build", process.build}});
    out.family({"gpunbd_process_id", MetricType::gauge, "Number of the process."});
    out.add({}, process.pid);
    out.family({"gpunbd_workers", MetricType::gauge, "Threads that serve requests."});
    out.add({}, process.workers);
    out.family({"gpunbd_state", MetricType::gauge,
                "What the server does: 1 for the state that it is in."});
    for (const std::string_view state : {"starting", "serving", "draining"}) {
        out.add({{"state", state}}, process.state == state);
    }
}

void add_progress(Exposition& out, const std::vector<ProgressStatus>& progress) {
    out.family({"gpunbd_progress_done", MetricType::gauge, "How much of what takes long is done."});
    for (const ProgressStatus& each : progress) {
        out.add({{"what", each.what}, {"of", each.of}, {"unit", each.unit}}, each.done);
    }
    out.family({"gpunbd_progress_expected", MetricType::gauge,
                "How much it is in all, where that is known."});
    for (const ProgressStatus& each : progress) {
        if (each.total == 0) continue;
        out.add({{"what", each.what}, {"of", each.of}, {"unit", each.unit}}, each.total);
    }
}

}  // namespace

void add_process_metrics(Exposition& out, const Status& status) {
    add_customary(out, status.process);
    add_own(out, status.process);
    out.family(
        {"gpunbd_time_seconds", MetricType::gauge, "When these values were taken, since 1970."});
    out.add({}, status.time);
    add_progress(out, status.progress);
}

}  // namespace gpunbd::server
