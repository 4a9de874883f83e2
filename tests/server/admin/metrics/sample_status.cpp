#include "tests/server/admin/metrics/sample_status.hpp"

#include <chrono>
#include <utility>

#include "config/size.hpp"

namespace gpunbd::server::test {

namespace {

using config::GiB;

ProcessStatus sample_process(std::uint64_t seconds) {
    return {.version = "1.2.3",
            .commit = "abc123",
            .build = "Release, CUDA 12.4",
            .pid = 4711,
            .started = 1764000000.25,
            .uptime = 100.25 + static_cast<double>(seconds),
            .cpu_seconds = 12.5 + static_cast<double>(seconds) / 2,
            .resident = 123456789,
            .open_files = 42,
            .max_open_files = 65536,
            .workers = 6,
            .state = "serving"};
}

RequestStatus sample_requests(std::string type, std::uint64_t requests, std::uint64_t rate) {
    using namespace std::chrono_literals;
    RequestStatus made;
    made.type = std::move(type);
    made.requests = requests + rate;
    made.bytes = made.requests * 4096;
    made.in_flight = 3;
    for (std::uint64_t i = 0; i <= made.requests % 1000; ++i) made.latency.record(60us);
    made.latency.record(1500us);
    made.latency.record(20s);
    return made;
}

OriginRequests origin_reads(std::uint64_t seconds) {
    using namespace std::chrono_literals;
    OriginRequests made{.operation = "read"};
    for (std::uint64_t i = 0; i != 7 + seconds; ++i) made.latency.record(300us);
    made.latency.record(40ms);
    return made;
}

ExportStatus scratch(std::uint64_t seconds) {
    ExportStatus made;
    made.name = "scratch";
    made.description = "for everybody";
    made.size = 64 * GiB;
    made.page_size = 2097152;
    made.layout = "stripe";
    made.provision = "thin";
    made.keep = true;
    made.instance = "0123456789abcdef";
    made.memory = {{"cuda:0", 5 * GiB, 6 * GiB, 61},
                   {"cuda:1", 7 * GiB, 8 * GiB, 81},
                   {"host", 28, 64, 1, "cuda:0"}};
    made.connections = 9;
    made.stalled = 2;
    made.rates = {.bytes_per_second = 500'000'000, .iops = 70'000, .burst = 1.5};
    made.held_back = 17 + seconds;
    made.longest = {
        .type = "write", .seconds = 0.25, .waits = {{"queue", 0.0625}, {"device", 0.1875}}};
    made.origins = {{"/srv/a.img", 40, 41, 42, 39, 43, 44, 45, 46, 4.5, 48}};
    made.origins[0].requests = {origin_reads(seconds)};
    made.requests.push_back(sample_requests("read", 10'000, seconds * sample_read_rate / 4096));
    made.requests.push_back(sample_requests("write", 20'000, seconds * 500));
    made.requests.back().errors = {{"ENOSPC", 5}, {"EINVAL", 6}};
    return made;
}

ExportStatus hard_to_write() {
    ExportStatus made;
    made.name = "a \"b\" \\ c\nd \xff\xe2\x82\xac";
    made.size = 1 * GiB;
    made.page_size = 65536;
    made.layout = "linear";
    made.provision = "full";
    made.read_only = true;
    made.swap = true;
    made.memory = {{"host", 1 * GiB, 1 * GiB, 1}};
    return made;
}

DeviceStatus gpu(std::uint64_t seconds) {
    DeviceStatus made;
    made.id = "cuda:0";
    made.name = "NVIDIA H200";
    made.total = 141 * GiB;
    made.available = 100 * GiB;
    made.reserve = 2 * GiB;
    made.mapped = 3 * GiB;
    made.allocated = 20 * GiB;
    made.used = 19 * GiB;
    made.slabs = 200;
    made.staging = 33554432;
    made.staging_used = 1048576;
    made.staging_waits = 21 + seconds;
    made.failures = 22;
    made.copies = {{"mapping", "write", 23 + seconds, 24'000 + seconds * 4096},
                   {"copy engine", "read", 25 + seconds, 26'000 + seconds * 4096}};
    made.others_compute = true;
    made.competition_noticed = 27;
    made.revocable = 33;
    made.yielded = 34;
    made.evictions = 35;
    made.spilled = 28;
    made.limit = 29;
    made.moved_out = 30;
    made.moved_back = 31;
    made.not_reclaimed = 32;
    made.last_reclaim = 1'700'000'000;
    return made;
}

DeviceStatus failed_gpu() {
    DeviceStatus made;
    made.id = "cuda:1";
    made.name = "NVIDIA L4";
    made.failed = true;
    made.total = 24 * GiB;
    made.allocated = 8 * GiB;
    made.used = 7 * GiB;
    made.slabs = 81;
    return made;
}

ConnectionStatus connection(std::uint64_t id, std::string listener, bool serving, std::string tls) {
    ConnectionStatus made;
    made.id = id;
    made.peer = "10.9.8.7:65432";
    made.listener = std::move(listener);
    made.serving = serving;
    made.tls = std::move(tls);
    return made;
}

}  // namespace

Status sample_status(std::uint64_t seconds) {
    Status made;
    made.time = 1764000100.5 + static_cast<double>(seconds);
    made.process = sample_process(seconds);
    made.progress = {{"provisioning", "scratch", 1 * GiB, 4 * GiB, "bytes"},
                     {"draining", "", 2, 0, "connections"}};
    made.certificates = {{"/etc/gpunbd/tls/server-cert.pem", 1'800'000'000}};
    made.accepted = 1001 + seconds;
    made.refused = {{"too many connections", 11 + seconds}, {"too many of this peer", 12}};
    made.handshakes = 901 + seconds;
    made.tls_handshakes = 301 + seconds;
    made.failed_handshakes = {{"timeout", 13}, {"no such export", 14 + seconds}};
    made.devices = {gpu(seconds), failed_gpu()};
    made.exports.push_back(scratch(seconds));
    made.exports.push_back(hard_to_write());
    made.connections = {connection(1, "127.0.0.1:10809", true, "TLS 1.3, TLS_AES_256_GCM_SHA384"),
                        connection(2, "127.0.0.1:10809", true, ""),
                        connection(3, "/run/gpunbd/gpunbd.sock", false, "")};
    return made;
}

}  // namespace gpunbd::server::test
