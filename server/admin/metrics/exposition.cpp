#include "server/admin/metrics/exposition.hpp"

#include <utility>

#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

struct Edge {
    std::string_view seconds;  // in the notation of OpenMetrics clients
    std::uint64_t ns;
};

constexpr Edge latency_edges[] = {
    {"1e-06", 1'000},         {"2e-06", 2'000},       {"5e-06", 5'000},
    {"1e-05", 10'000},        {"2e-05", 20'000},      {"5e-05", 50'000},
    {"0.0001", 100'000},      {"0.0002", 200'000},    {"0.0005", 500'000},
    {"0.001", 1'000'000},     {"0.002", 2'000'000},   {"0.005", 5'000'000},
    {"0.01", 10'000'000},     {"0.02", 20'000'000},   {"0.05", 50'000'000},
    {"0.1", 100'000'000},     {"0.2", 200'000'000},   {"0.5", 500'000'000},
    {"1.0", 1'000'000'000},   {"2.0", 2'000'000'000}, {"5.0", 5'000'000'000},
    {"10.0", 10'000'000'000},
};

std::string_view name_of(MetricType type, bool openmetrics) {
    switch (type) {
        case MetricType::counter:
            return "counter";
        case MetricType::gauge:
            return "gauge";
        case MetricType::histogram:
            return "histogram";
        case MetricType::info:
            return openmetrics ? "info" : "gauge";
    }
    return "unknown";
}

// Empty: none, or not a base unit.
std::string_view unit_of(std::string_view name) {
    for (const std::string_view unit : {"bytes", "seconds"}) {
        if (name.ends_with(unit)) return unit;
    }
    return {};
}

void append_escaped(std::string& out, std::string_view text) {
    for (const char c : text) {
        if (c == '\n') {
            out += "\\n";
            continue;
        }
        if (c == '\\' || c == '"') out += '\\';
        out += c;
    }
}

void append_label(std::string& out, char before, std::string_view name, std::string_view value) {
    out += before;
    out += name;
    out += "=\"";
    append_escaped(out, config::repaired_utf8(value));  // invalid bytes invalidate the whole text
    out += '"';
}

}  // namespace

void Exposition::begin(const Metric& metric) {
    metric_ = metric;
    head_missing_ = true;
}

void Exposition::add(const Labels& labels, double value) {
    add_sample(suffix_of(metric_.type), labels, fmt::format("{}", value));
}

void Exposition::add(const Labels& labels) { add_sample(suffix_of(metric_.type), labels, "1"); }

void Exposition::add(const Labels& labels, const storage::Histogram& durations) {
    for (const Edge& edge : latency_edges) {
        add_sample("_bucket", labels, fmt::format_int(durations.count_up_to(edge.ns)).c_str(),
                   edge.seconds);
    }
    const fmt::format_int count(durations.count());
    add_sample("_bucket", labels, count.c_str(), "+Inf");
    add_sample("_sum", labels, fmt::format("{}", static_cast<double>(durations.sum()) / 1e9));
    add_sample("_count", labels, count.c_str());
}

std::string Exposition::text() && {
    if (openmetrics_) text_ += "# EOF\n";
    return std::move(text_);
}

std::string_view suffix_of(MetricType type) {
    switch (type) {
        case MetricType::counter:
            return "_total";
        case MetricType::info:
            return "_info";
        default:
            return {};
    }
}

void Exposition::add_head() {
    const std::string_view suffix = openmetrics_ ? std::string_view() : suffix_of(metric_.type);
    const auto add_line = [&](std::string_view what, std::string_view text) {
        fmt::format_to(std::back_inserter(text_), "# {} {}{} {}\n", what, metric_.name, suffix,
                       text);
    };
    add_line("HELP", metric_.help);
    add_line("TYPE", name_of(metric_.type, openmetrics_));
    const std::string_view unit = unit_of(metric_.name);
    if (openmetrics_ && !unit.empty()) add_line("UNIT", unit);
    head_missing_ = false;
}

void Exposition::add_sample(std::string_view suffix, const Labels& labels, std::string_view value,
                            std::string_view edge) {
    if (head_missing_) add_head();
    text_ += metric_.name;
    text_ += suffix;
    char before = '{';
    for (const Label& label : labels) {
        append_label(text_, std::exchange(before, ','), label.name, label.value);
    }
    if (!edge.empty()) append_label(text_, std::exchange(before, ','), "le", edge);
    if (before == ',') text_ += '}';
    text_ += ' ';
    text_ += value;
    text_ += '\n';
}

}  // namespace gpunbd::server
