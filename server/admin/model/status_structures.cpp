// The tables of the status structures of the server, its devices and its connections.
#include <array>
#include <cstdint>

#include "server/admin/model/field_kinds.hpp"
#include "server/admin/model/status.hpp"

namespace gpunbd::server {

FieldsOf<WorkerCounts<std::uint64_t>> fields_of(const WorkerCounts<std::uint64_t>&) {
    using Self = WorkerCounts<std::uint64_t>;
    return std::to_array<Field>({counter("handshakes", &Self::handshakes, "gpunbd_handshakes",
                                         "Handshakes that opened an export."),
                                 counter("tls_handshakes", &Self::tls_handshakes,
                                         "gpunbd_tls_handshakes", "TLS handshakes that succeeded."),
                                 counters("failed_handshakes", &Self::failed_handshakes, "reason",
                                          "gpunbd_handshake_failures", "Handshakes that failed.")});
}
FieldsOf<ConnectionCounts<std::uint64_t>> fields_of(const ConnectionCounts<std::uint64_t>&) {
    using Self = ConnectionCounts<std::uint64_t>;
    return std::to_array<Field>(
        {field("requests", &Self::requests), field("in_flight", &Self::in_flight),
         field("errors", &Self::errors, "Requests answered with an error."),
         field("read", &Self::read, "Bytes sent in replies to reads."),
         field("written", &Self::written, "Bytes of acknowledged writes.")});
}
const Structure& CopyStatus::structure() {
    using Self = CopyStatus;
    static const Structure made = structure_of<Self>(
        {"Copies"},
        {label("path", &Self::path, "path"),
         label("direction", &Self::direction, "direction").one_of(directions),
         counter("copies", &Self::copies, "gpunbd_device_copies", "Copies, by path and direction."),
         counter("bytes", &Self::bytes, "gpunbd_device_copied_bytes", "Bytes copied.")});
    return made;
}

const Structure& ClaimStatus::structure() {
    using Self = ClaimStatus;
    static const Structure made = structure_of<Self>(
        {"Claim", "Memory of a device that was given back to other programs on request."},
        {
            field("id", &Self::id, "For /reclaim/end."),
            field("owner", &Self::owner, "The client that asked for it."),
            field("asked", &Self::asked, "Bytes asked for; null: all."),
            field("bytes", &Self::bytes, "Bytes by which exports use less, because of this claim."),
            field("age", &Self::age,
                  "Seconds since the request, also if the clock was set meanwhile."),
            field("ends_in", &Self::ends_in, "Seconds until it ends by itself; null: never."),
        });
    return made;
}

const Structure& DeviceStatus::structure() {
    using Self = DeviceStatus;
    static const Structure made = structure_of<Self>(
        {"Device"},
        {
            label("id", &Self::id, "device"),
            info("name", &Self::name, "name"),
            gauge("failed", &Self::failed, "gpunbd_device_failed",
                  "1: the device has failed permanently."),
            gauge("total", &Self::total, "gpunbd_device_memory_size_bytes",
                  "Memory of the device: its capacity, where that is set, or else all of it."),
            gauge(
                "available", &Self::available, "gpunbd_device_memory_available_bytes",
                "Memory that exports can still allocate: what is free, or less while a limit is in "
                "effect."),
            gauge("reserve", &Self::reserve, "gpunbd_device_memory_reserve_bytes",
                  "Memory left to other programs."),
            gauge("mapped", &Self::mapped, "gpunbd_device_memory_mapped_bytes",
                  "Memory mapped for the CPU."),
            gauge("allocated", &Self::allocated, "gpunbd_device_memory_allocated_bytes",
                  "Memory that the server has allocated."),
            gauge("used", &Self::used, "gpunbd_device_memory_used_bytes",
                  "Memory of pages that exports use. A page that several exports share counts "
                  "once."),
            gauge("slabs", &Self::slabs, "gpunbd_device_slabs",
                  "Slabs that memory is allocated in."),
            gauge("staging", &Self::staging, "gpunbd_device_staging_bytes",
                  "Staging memory for copies, of all workers."),
            gauge("staging_used", &Self::staging_used, "gpunbd_device_staging_used_bytes",
                  "Staging memory that transfers hold now."),
            counter("staging_waits", &Self::staging_waits, "gpunbd_device_staging_waits",
                    "Transfers that waited for pinned memory."),
            counter("failures", &Self::failures, "gpunbd_device_copy_failures",
                    "Copies that failed."),
            part("copies", &Self::copies),
            gauge("others_compute", &Self::others_compute, "gpunbd_device_others_compute",
                  "1: other programs compute on the device; missing if that is not known."),
            counter("competition_noticed", &Self::competition_noticed,
                    "gpunbd_device_competition_noticed",
                    "How often other programs were seen to start computing."),
            field("reclaimable", &Self::reclaimable,
                  "Whether its memory can be given back to other programs."),
            gauge("revocable", &Self::revocable, "gpunbd_device_memory_revocable_bytes",
                  "Allocated memory that the driver moves to host memory for other programs."),
            gauge("yielded", &Self::yielded, "gpunbd_device_memory_yielded_bytes",
                  "Revocable memory that may be in host memory, because other programs have taken "
                  "some of it."),
            counter("evictions", &Self::evictions, "gpunbd_device_evictions",
                    "How often other programs were seen to take revocable memory."),
            gauge("spilled", &Self::spilled, "gpunbd_device_memory_spilled_bytes",
                  "Memory of pages that have left the device for spill memory."),
            gauge("limit", &Self::limit, "gpunbd_device_memory_limit_bytes",
                  "Limit on the allocated memory, while memory is given back to other programs; "
                  "missing if there is none."),
            gauge("withheld", &Self::withheld, "gpunbd_device_memory_withheld_bytes",
                  "Free memory that exports do not use because of the limit."),
            field("claims", &Self::claims, "The requests for memory of the device in effect."),
            counter("moved_out", &Self::moved_out, "gpunbd_device_moved_out_bytes",
                    "Memory of pages that were moved to spill memory."),
            counter("moved_back", &Self::moved_back, "gpunbd_device_moved_back_bytes",
                    "Memory of pages that were moved back."),
            counter("not_reclaimed", &Self::not_reclaimed, "gpunbd_device_not_reclaimed_bytes",
                    "Memory that was to be given back and was not, because pages had to stay."),
            gauge("last_reclaim", &Self::last_reclaim,
                  "gpunbd_device_last_reclaim_timestamp_seconds",
                  "When memory was last given back, since 1970; missing if it never was."),
        },
        {"gpunbd_device", MetricType::info, "The devices and their names."});
    return made;
}

const Structure& ConnectionStatus::structure() {
    using Self = ConnectionStatus;
    static const Structure made = structure_of<Self>(
        {"Connection"},
        {
            field("id", &Self::id),
            field("peer", &Self::peer),
            field("listener", &Self::listener),
            nullable(
                "export", &Self::export_name, [](const Self& self) { return self.serving; },
                "null: the client is still negotiating."),
            field("serving", &Self::serving),
            field("read_only", &Self::read_only),
            field("age", &Self::age,
                  "Seconds since the client connected, also if the clock was set meanwhile."),
            nullable("tls", &Self::tls, [](const Self& self) { return !self.tls.empty(); }),
            nullable("identity", &Self::identity,
                     [](const Self& self) { return !self.identity.empty(); }),
            field("stalled", &Self::stalled,
                  "Seconds since the client stopped reading its replies, if these are five or "
                  "more; otherwise 0."),
        });
    return made;
}

const Structure& KeptStatus::structure() {
    using Self = KeptStatus;
    static const Structure made = structure_of<Self>(
        {"Kept", "Contents that outlive the server. Unknown values are null."},
        {
            field("name", &Self::name),
            field("size", &Self::size),
            field("used", &Self::used),
            nullable("devices", &Self::devices,
                     [](const Self& self) { return !self.devices.empty(); }),
            field("made", &Self::made, "In seconds since 1970."),
            nullable("instance", &Self::instance,
                     [](const Self& self) { return !self.instance.empty(); }),
            field("state", &Self::state,
                  "`in use`, `no export has them`, or the reason why they could not be taken "
                  "over."),
        });
    return made;
}

const Structure& MovedStatus::structure() {
    using Self = MovedStatus;
    static const Structure made =
        structure_of<Self>({"Moved", "Pages that were moved to a device."},
                           {field("device", &Self::device), field("bytes", &Self::bytes)});
    return made;
}

const Structure& ReclaimStatus::structure() {
    using Self = ReclaimStatus;
    static const Structure made = structure_of<Self>(
        {"Reclaim"},
        {
            field("device", &Self::device),
            field("wanted", &Self::wanted, "Bytes to give back to other programs; 0 at the end."),
            field("released", &Self::released, "Bytes given back; more than wanted, if slabs are."),
            field("freed", &Self::freed, "Of these, bytes of contents that no export had."),
            field("dropped", &Self::dropped,
                  "Bytes of pages that were dropped, since their origin has them."),
            field("moved", &Self::moved, "Where pages were moved."),
            field("seconds", &Self::seconds),
            nullable(
                "why_not", &Self::why_not, [](const Self& self) { return !self.complete(); },
                "Why pages stay where they are; null if it is done."),
            field("claim", &Self::claim,
                  "The id of the request while it is in effect; null at the end, and if nothing "
                  "was given back."),
            field("limit", &Self::limit,
                  "What exports may use of the device from now on; null: there is no limit."),
        });
    return made;
}

const Structure& CertificateStatus::structure() {
    using Self = CertificateStatus;
    static const Structure made = structure_of<Self>(
        {"Certificate"},
        {
            label("file", &Self::file, "file"),
            gauge("expires", &Self::expires, "gpunbd_certificate_expiry_timestamp_seconds",
                  "When connections in TLS begin to fail unless the file is replaced, since 1970."),
        });
    return made;
}

const Structure& ProgressStatus::structure() {
    using Self = ProgressStatus;
    static const Structure made = structure_of<Self>(
        {"Progress"},
        {
            label("what", &Self::what, "what"),
            label("of", &Self::of, "of"),
            gauge("done", &Self::done, "gpunbd_progress_done",
                  "How much of a long operation is done; missing while there is none."),
            gauge("total", &Self::total, "gpunbd_progress_expected",
                  "Total of a long operation; missing if it is not known, and 0 in JSON.",
                  [](const Self& self) { return self.total != 0; }),
            label("unit", &Self::unit, "unit").one_of(units),
        });
    return made;
}

const Structure& ProcessStatus::structure() {
    using Self = ProcessStatus;
    // The names that begin with process_ are those of Prometheus's own clients.
    static const Structure made = structure_of<Self>(
        {"Process"},
        {
            info("version", &Self::version, "version"),
            info("commit", &Self::commit, "commit"),
            info("build", &Self::build, "build"),
            gauge("pid", &Self::pid, "gpunbd_process_id", "Process id."),
            gauge("started", &Self::started, "process_start_time_seconds",
                  "Start of the process, since 1970."),
            field("uptime", &Self::uptime,
                  "Seconds since the start, also if the clock was set meanwhile."),
            counter(
                "cpu_seconds", &Self::cpu_seconds, "process_cpu_seconds",
                "CPU time used, in user and system mode; workers that poll use it without work."),
            gauge("resident", &Self::resident, "process_resident_memory_bytes", "Resident memory."),
            gauge("open_files", &Self::open_files, "process_open_fds", "Open file descriptors."),
            gauge("max_open_files", &Self::max_open_files, "process_max_fds",
                  "Limit on open file descriptors."),
            gauge("workers", &Self::workers, "gpunbd_workers", "Threads that serve requests."),
            field("state", &Self::state).one_of(states),
            only_gauge<Self>(
                "gpunbd_state", "1 for the state that the server is in.",
                [](const Self& self) { return self.by_state(); }, "state"),
        },
        {"gpunbd_build", MetricType::info, "The version of the server and how it was built."});
    return made;
}

const Structure& Status::structure() {
    using Self = Status;
    static const Structure made = structure_of<Self>(
        {"Status", "The state of the server, without connections, events and maps."},
        {
            gauge("time", &Self::time, "gpunbd_time_seconds",
                  "When these values were taken, since 1970."),
            part("process", &Self::process),
            part("progress", &Self::progress),
            part("certificates", &Self::certificates),
            counter("accepted", &Self::accepted, "gpunbd_connections_accepted",
                    "Accepted connections."),
            calculated<Self>(
                "connections", [](const Self& self) { return self.connections.size(); },
                "Current connections."),
            only_gauge<Self>(
                "gpunbd_connections", "Current connections.",
                [](const Self& self) { return self.connections_by_state(); }, "state"),
            only_gauge<Self>("gpunbd_tls_connections", "Current connections in TLS.",
                             [](const Self& self) {
                                 return self.connections_with([](const ConnectionStatus& each) {
                                     return !each.tls.empty();
                                 });
                             }),
            only_gauge<Self>(
                "gpunbd_listener_connections", "Current connections of a listener.",
                [](const Self& self) { return self.connections_by_listener(); }, "listener"),
            counters("refused", &Self::refused, "reason", "gpunbd_connections_refused",
                     "Connections closed before their handshake."),
            part("devices", &Self::devices),
            part("exports", &Self::exports),
            field("contents", &Self::contents, "Contents without an export."),
            only_gauge<Self>(
                "gpunbd_contents_without_export",
                "Contents that no export has: kept ones of removed exports, and those that clients "
                "of removed exports still use.",
                [](const Self& self) { return std::uint64_t{self.contents.size()}; }),
            only_gauge<Self>("gpunbd_contents_without_export_bytes",
                             "Memory of pages that only these have.",
                             [](const Self& self) { return self.own_of_contents(); }),
        });
    return made;
}

}  // namespace gpunbd::server
