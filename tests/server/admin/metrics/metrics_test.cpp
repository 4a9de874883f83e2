#include "server/admin/metrics/metrics.hpp"

#include <fmt/format.h>

#include <regex>
#include <sstream>

#include "tests/server/admin/metrics/sample_status.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
    Lines lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::ptrdiff_t times(const Lines& lines, std::string_view line) {
    return std::ranges::count(lines, line);
}

// The values of the samples with this prefix.
std::vector<double> values(const Lines& lines, std::string_view begin) {
    std::vector<double> found;
    for (const std::string& line : lines) {
        if (line.starts_with(begin)) found.push_back(std::stod(line.substr(line.rfind(' '))));
    }
    return found;
}

// The samples without comments, which differ between the two formats.
Lines samples(const std::string& text) {
    Lines lines = lines_of(text);
    std::erase_if(lines, [](const std::string& line) { return line.starts_with('#'); });
    return lines;
}

const char* const expected[] = {
    // the process
    "process_cpu_seconds_total 12.5",
    "process_resident_memory_bytes 123456789",
    "process_open_fds 42",
    "process_max_fds 65536",
    "process_start_time_seconds 1764000000.25",
    R"(gpunbd_build_info{version="1.2.3",commit="abc123",build="Release, CUDA 12.4"} 1)",
    "gpunbd_process_id 4711",
    "gpunbd_workers 6",
    R"(gpunbd_state{state="starting"} 0)",
    R"(gpunbd_state{state="serving"} 1)",
    R"(gpunbd_state{state="draining"} 0)",
    "gpunbd_time_seconds 1764000100.5",
    R"(gpunbd_progress_done{what="provisioning",of="scratch",unit="bytes"} 1073741824)",
    R"(gpunbd_progress_expected{what="provisioning",of="scratch",unit="bytes"} 4294967296)",
    R"(gpunbd_progress_done{what="draining",of="",unit="connections"} 2)",
    R"(gpunbd_certificate_expiry_timestamp_seconds{file="/etc/gpunbd/tls/server-cert.pem"} 1800000000)",
    // connections
    "gpunbd_connections_accepted_total 1001",
    R"(gpunbd_connections_refused_total{reason="too many connections"} 11)",
    R"(gpunbd_connections_refused_total{reason="too many of this peer"} 12)",
    "gpunbd_handshakes_total 901",
    "gpunbd_tls_handshakes_total 301",
    R"(gpunbd_handshake_failures_total{reason="timeout"} 13)",
    R"(gpunbd_handshake_failures_total{reason="no such export"} 14)",
    R"(gpunbd_connections{state="negotiating"} 1)",
    R"(gpunbd_connections{state="serving"} 2)",
    "gpunbd_tls_connections 1",
    R"(gpunbd_listener_connections{listener="127.0.0.1:10809"} 2)",
    R"(gpunbd_listener_connections{listener="/run/gpunbd/gpunbd.sock"} 1)",
    // devices
    R"(gpunbd_device_info{device="cuda:0",name="NVIDIA H200"} 1)",
    R"(gpunbd_device_failed{device="cuda:0"} 0)",
    R"(gpunbd_device_failed{device="cuda:1"} 1)",
    R"(gpunbd_device_others_compute{device="cuda:0"} 1)",
    R"(gpunbd_device_memory_size_bytes{device="cuda:0"} 151397597184)",
    R"(gpunbd_device_memory_available_bytes{device="cuda:0"} 107374182400)",
    R"(gpunbd_device_memory_reserve_bytes{device="cuda:0"} 2147483648)",
    R"(gpunbd_device_memory_mapped_bytes{device="cuda:0"} 3221225472)",
    R"(gpunbd_device_memory_allocated_bytes{device="cuda:0"} 21474836480)",
    R"(gpunbd_device_memory_used_bytes{device="cuda:0"} 20401094656)",
    R"(gpunbd_device_slabs{device="cuda:0"} 200)",
    R"(gpunbd_device_staging_bytes{device="cuda:0"} 33554432)",
    R"(gpunbd_device_staging_used_bytes{device="cuda:0"} 1048576)",
    R"(gpunbd_device_staging_waits_total{device="cuda:0"} 21)",
    R"(gpunbd_device_copy_failures_total{device="cuda:0"} 22)",
    R"(gpunbd_device_copies_total{device="cuda:0",path="mapping",direction="write"} 23)",
    R"(gpunbd_device_copied_bytes_total{device="cuda:0",path="mapping",direction="write"} 24000)",
    R"(gpunbd_device_copies_total{device="cuda:0",path="copy engine",direction="read"} 25)",
    R"(gpunbd_device_copied_bytes_total{device="cuda:0",path="copy engine",direction="read"} 26000)",
    R"(gpunbd_device_competition_noticed_total{device="cuda:0"} 27)",
    R"(gpunbd_device_memory_revocable_bytes{device="cuda:0"} 33)",
    R"(gpunbd_device_memory_yielded_bytes{device="cuda:0"} 34)",
    R"(gpunbd_device_evictions_total{device="cuda:0"} 35)",
    R"(gpunbd_device_memory_spilled_bytes{device="cuda:0"} 28)",
    R"(gpunbd_device_memory_limit_bytes{device="cuda:0"} 29)",
    R"(gpunbd_device_moved_out_bytes_total{device="cuda:0"} 30)",
    R"(gpunbd_device_moved_back_bytes_total{device="cuda:0"} 31)",
    R"(gpunbd_device_not_reclaimed_bytes_total{device="cuda:0"} 32)",
    R"(gpunbd_device_last_reclaim_timestamp_seconds{device="cuda:0"} 1700000000)",
    R"(gpunbd_export_memory_used_bytes{export="scratch",device="host",home="cuda:0"} 28)",
    R"(gpunbd_origin_fetched_pages_total{export="scratch",path="/srv/a.img"} 41)",
    R"(gpunbd_origin_request_seconds_bucket{export="scratch",path="/srv/a.img",operation="read",le="0.0002"} 0)",
    R"(gpunbd_origin_request_seconds_bucket{export="scratch",path="/srv/a.img",operation="read",le="0.0005"} 7)",
    R"(gpunbd_origin_request_seconds_bucket{export="scratch",path="/srv/a.img",operation="read",le="0.05"} 8)",
    R"(gpunbd_origin_request_seconds_sum{export="scratch",path="/srv/a.img",operation="read"} 0.0421)",
    R"(gpunbd_origin_request_seconds_count{export="scratch",path="/srv/a.img",operation="read"} 8)",
    // exports
    R"(gpunbd_export_info{export="scratch",description="for everybody",layout="stripe",)"
    R"(provision="thin",keep="yes",swap="no",contents="0123456789abcdef"} 1)",
    R"(gpunbd_export_size_bytes{export="scratch"} 68719476736)",
    // A name with characters that are escaped, and with repaired UTF-8.
    "gpunbd_export_size_bytes{export=\"a \\\"b\\\" \\\\ c\\nd \xef\xbf\xbd\xe2\x82\xac\"} "
    "1073741824",
    R"(gpunbd_export_page_size_bytes{export="scratch"} 2097152)",
    R"(gpunbd_export_read_only{export="scratch"} 0)",
    R"(gpunbd_export_connections{export="scratch"} 9)",
    R"(gpunbd_export_stalled_connections{export="scratch"} 2)",
    R"(gpunbd_export_requests_held_back_total{export="scratch"} 17)",
    R"(gpunbd_export_longest_request_seconds{export="scratch"} 0.25)",
    R"(gpunbd_export_longest_request_wait_seconds{export="scratch",stage="device"} 0.1875)",
    R"(gpunbd_export_limit_bytes_per_second{export="scratch"} 500000000)",
    R"(gpunbd_export_limit_requests_per_second{export="scratch"} 70000)",
    R"(gpunbd_export_limit_burst_seconds{export="scratch"} 1.5)",
    R"(gpunbd_export_memory_used_bytes{export="scratch",device="cuda:0",home=""} 5368709120)",
    R"(gpunbd_export_memory_allocated_bytes{export="scratch",device="cuda:0",home=""} 6442450944)",
    R"(gpunbd_export_slabs{export="scratch",device="cuda:0",home=""} 61)",
    R"(gpunbd_export_slabs{export="scratch",device="cuda:1",home=""} 81)",
    R"(gpunbd_export_requests_total{export="scratch",type="read"} 10000)",
    R"(gpunbd_export_requests_total{export="scratch",type="write"} 20000)",
    R"(gpunbd_export_request_bytes_total{export="scratch",type="read"} 40960000)",
    R"(gpunbd_export_requests_in_flight{export="scratch",type="read"} 3)",
    R"(gpunbd_export_request_errors_total{export="scratch",type="read",error="EIO"} 0)",
    R"(gpunbd_export_request_errors_total{export="scratch",type="read",error="ENOSPC"} 0)",
    R"(gpunbd_export_request_errors_total{export="scratch",type="write",error="ENOSPC"} 5)",
    R"(gpunbd_export_request_errors_total{export="scratch",type="write",error="EINVAL"} 6)",
    R"(gpunbd_export_request_duration_seconds_bucket{export="scratch",type="read",le="5e-05"} 0)",
    R"(gpunbd_export_request_duration_seconds_bucket{export="scratch",type="read",le="0.0001"} 1)",
    R"(gpunbd_export_request_duration_seconds_bucket{export="scratch",type="read",le="0.002"} 2)",
    R"(gpunbd_export_request_duration_seconds_bucket{export="scratch",type="read",le="10.0"} 2)",
    R"(gpunbd_export_request_duration_seconds_bucket{export="scratch",type="read",le="+Inf"} 3)",
    R"(gpunbd_export_request_duration_seconds_sum{export="scratch",type="read"} 20.00156)",
    R"(gpunbd_export_request_duration_seconds_count{export="scratch",type="read"} 3)",
};

// The name in "# TYPE name type" and similar lines.
std::string family_of(const std::string& line) {
    const std::size_t begin = line.find(' ', 2) + 1;
    return line.substr(begin, line.find(' ', begin) - begin);
}

// Whether the sample belongs to the family, by the rules of the format.
bool belongs(const std::string& sample, const std::string& family) {
    if (!sample.starts_with(family)) return false;
    const std::string rest =
        sample.substr(family.size(), sample.find_first_of("{ ") - family.size());
    static const std::set<std::string> suffixes = {"",        "_total", "_info",
                                                   "_bucket", "_sum",   "_count"};
    return suffixes.contains(rest);
}

}  // namespace

TEST_CASE("metrics: the published series have their names, labels and values") {
    const Lines lines = lines_of(metrics_text(sample_status(), false));
    for (const std::string_view line : expected) {
        CAPTURE(line);
        CHECK(times(lines, line) == 1);
    }
}

TEST_CASE("metrics: omits values that are unknown") {
    const std::string text = metrics_text(sample_status(), false);
    const Lines lines = lines_of(text);
    CHECK(values(lines, R"(gpunbd_device_others_compute{device="cuda:1")").empty());
    CHECK(values(lines, R"(gpunbd_progress_expected{what="draining")").empty());
    CHECK(values(lines, "gpunbd_export_limit_bytes_per_second").size() == 1);
    CHECK(values(lines, "gpunbd_export_limit_burst_seconds").size() == 1);

    const std::string nothing = metrics_text(Status{}, false);
    CHECK_FALSE(contains(nothing, "gpunbd_device"));
    CHECK_FALSE(contains(nothing, "gpunbd_export"));
    CHECK_FALSE(contains(nothing, "gpunbd_progress"));
    CHECK(times(lines_of(nothing), R"(gpunbd_connections{state="serving"} 0)") == 1);
}

// "name{label,label}" of each sample, without the suffixes and the label of histograms.
std::set<std::string> series_of(const std::string& text) {
    std::set<std::string> out;
    for (const std::string& line : samples(text)) {
        std::string one = std::regex_replace(line, std::regex(R"("(\\.|[^"\\])*")"), "");
        one =
            std::regex_replace(one, std::regex(",le=(?=[}])|_(bucket|sum|count)(?=[{])|=| .*"), "");
        out.insert(one);
    }
    return out;
}

TEST_CASE("metrics: the list for the manual has all of them, with their labels") {
    std::set<std::string> listed;
    for (const MetricText& each : all_metrics()) {
        const std::string labels = fmt::format("{{{}}}", fmt::join(each.labels, ","));
        listed.insert(each.name + (each.labels.empty() ? "" : labels));
        CHECK_FALSE(each.help.empty());
    }
    CHECK(listed == series_of(metrics_text(sample_status(), false)));
}

TEST_CASE("metrics: has no series per client") {
    const std::string text = metrics_text(sample_status(), false);
    CHECK_FALSE(contains(text, "10.9.8.7"));
    CHECK_FALSE(contains(text, "65432"));
}

TEST_CASE("metrics: each family has one header, followed by its samples") {
    for (const bool openmetrics : {false, true}) {
        CAPTURE(openmetrics);
        std::map<std::string, std::map<std::string, int>> heads;
        std::string family;
        for (const std::string& line : lines_of(metrics_text(sample_status(), openmetrics))) {
            CAPTURE(line);
            if (line == "# EOF") continue;
            if (line.starts_with("# HELP ")) family = family_of(line);
            if (!line.starts_with('#')) {
                CHECK(belongs(line, family));
                continue;
            }
            CHECK(family_of(line) == family);
            CHECK(++heads[family][line.substr(2, 4)] == 1);
        }
        CHECK(heads.size() > 40);
        for (const auto& [name, words] : heads) {
            CAPTURE(name);
            CHECK(words.contains("HELP"));
            CHECK(words.contains("TYPE"));
            CHECK(words.contains("UNIT") ==
                  (openmetrics && (name.ends_with("_bytes") || name.ends_with("_seconds"))));
        }
    }
}

TEST_CASE("metrics: both formats have the same samples") {
    const std::string prometheus = metrics_text(sample_status(), false);
    const std::string openmetrics = metrics_text(sample_status(), true);
    CHECK(samples(prometheus) == samples(openmetrics));
    CHECK(openmetrics.ends_with("\n# EOF\n"));
    CHECK_FALSE(contains(prometheus, "# EOF"));
    for (const auto& [text, lines] :
         {std::pair{prometheus, Lines{"# TYPE gpunbd_handshakes_total counter",
                                      "# TYPE gpunbd_build_info gauge",
                                      "# TYPE gpunbd_export_request_bytes_total counter"}},
          std::pair{openmetrics,
                    Lines{"# TYPE gpunbd_handshakes counter", "# TYPE gpunbd_build info",
                          "# TYPE gpunbd_export_request_bytes counter",
                          "# UNIT gpunbd_export_request_bytes bytes",
                          "# UNIT process_cpu_seconds seconds",
                          "# UNIT gpunbd_export_request_duration_seconds seconds"}}}) {
        for (const std::string& line : lines) {
            CAPTURE(line);
            CHECK(times(lines_of(text), line) == 1);
        }
    }
}

TEST_CASE("metrics: buckets are cumulative, and the last one equals the count") {
    const Lines lines = lines_of(metrics_text(sample_status(777), false));
    const std::string of_export = "gpunbd_export_request_duration_seconds";
    for (const auto& [name, labels] :
         {std::pair{of_export, R"({export="scratch",type="read")"},
          std::pair{of_export, R"({export="scratch",type="write")"},
          std::pair{std::string("gpunbd_origin_request_seconds"),
                    R"({export="scratch",path="/srv/a.img",operation="read")"}}) {
        CAPTURE(labels);
        const auto buckets = values(lines, fmt::format("{}_bucket{}", name, labels));
        CHECK(buckets.size() == 23);
        CHECK(std::ranges::is_sorted(buckets));
        CHECK(buckets.front() < buckets.back());
        CHECK(values(lines, fmt::format("{}_count{}", name, labels)) ==
              std::vector{buckets.back()});
    }
}

}  // namespace gpunbd::server::test
