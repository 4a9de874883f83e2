// Metrics as text, in the format of Prometheus (0.0.4) or in that of OpenMetrics 1.0: what differs
// between the two is known here alone.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "storage/histogram.hpp"

namespace gpunbd::server {

enum class MetricType { counter, gauge, histogram, info };

// `name` is without _total and _info. Its last word is the unit, where that is bytes or seconds.
struct MetricFamily {
    std::string_view name;
    MetricType type;
    std::string_view help;
};

struct Label {
    std::string_view name;
    std::string_view value;  // any bytes: they are escaped, and what is no UTF-8 is repaired
};
using Labels = std::initializer_list<Label>;

class Exposition {
 public:
    explicit Exposition(bool openmetrics) : openmetrics_(openmetrics) {}

    // What is added from now on belongs to it. One to which nothing is added is not shown.
    void family(const MetricFamily& family);

    template <std::integral Number>
    void add(Labels labels, Number value) {
        add_sample(suffix(), labels, fmt::format_int(static_cast<std::uint64_t>(value)).c_str());
    }
    void add(Labels labels, double value);
    void add(Labels labels);  // of an info, whose value is nothing but 1
    void add(Labels labels, const storage::Histogram& durations);

    std::string text() &&;

 private:
    std::string_view suffix() const;
    void add_head();
    void add_sample(std::string_view suffix, Labels labels, std::string_view value,
                    std::string_view edge = {});

    const bool openmetrics_;
    MetricFamily family_{};
    bool head_missing_ = false;
    std::string text_;
};

}  // namespace gpunbd::server
