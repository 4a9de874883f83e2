#include "server/admin/metrics/metrics.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/admin/metrics/exposition.hpp"
#include "server/admin/model/status.hpp"
#include "server/admin/model/structure.hpp"

namespace gpunbd::server {

namespace {

using LabelNames = std::vector<std::string_view>;

LabelNames labels_of(const Structure& structure, LabelNames labels, FieldRole role) {
    for (const Field& field : structure.fields) {
        if (field.role == role) labels.push_back(field.label);
    }
    return labels;
}

void list(std::vector<MetricText>& out, const Structure& structure, LabelNames labels) {
    const auto add = [&](const Metric& metric, LabelNames names) {
        out.push_back({fmt::format("{}{}", metric.name, suffix_of(metric.type)), std::move(names),
                       metric.help});
    };
    labels = labels_of(structure, std::move(labels), FieldRole::label);
    if (!structure.info_metric.name.empty()) {
        add(structure.info_metric, labels_of(structure, labels, FieldRole::info));
    }
    for (const Field& field : structure.fields) {
        if (!field.metric.name.empty()) {
            LabelNames names = labels;
            if (!field.label.empty()) names.push_back(field.label);
            add(field.metric, std::move(names));
        }
        if (field.role == FieldRole::part) list(out, field.type->structure(), labels);
    }
}

// An object with the labels of its metrics.
struct Labelled {
    const void* object;
    Labels labels;
};
using LabelledObjects = std::vector<Labelled>;

std::string_view label_value(const Field& field, const void* object) {
    const void* const value = field.in(object);
    if (field.type->kind == ValueKind::boolean) return as<bool>(value) ? "yes" : "no";
    return as<std::string>(value);
}

Labels with(Labels labels, std::string_view name, std::string_view value) {
    labels.push_back({name, value});
    return labels;
}

Labels labels_of(const Structure& structure, const void* object, Labels labels, FieldRole role) {
    for (const Field& field : structure.fields) {
        if (field.role == role) labels.push_back({field.label, label_value(field, object)});
    }
    return labels;
}

// Samples of a map: one for each key.
void add_counts(Exposition& out, const Labels& labels, const Field& field,
                const CountsByReason& counts) {
    CountsByReason all;
    for (const std::string_view key : field.expected_keys) all.emplace(key, 0);
    for (const auto& [key, count] : counts) all[key] = count;
    for (const auto& [key, count] : all) out.add(with(labels, field.label, key), count);
}

void add_value(Exposition& out, const Labels& labels, const Field& field, const void* value) {
    if (field.type->optional()) value = field.type->value(value);
    if (value == nullptr) return;
    switch (field.type->kind) {
        case ValueKind::boolean:
            return out.add(labels, as<bool>(value));
        case ValueKind::count32:
            return out.add(labels, as<std::uint32_t>(value));
        case ValueKind::count:
            return out.add(labels, as<std::uint64_t>(value));
        case ValueKind::integer:
            return out.add(labels, as<std::int64_t>(value));
        case ValueKind::real:
            return out.add(labels, as<double>(value));
        case ValueKind::histogram:
            return out.add(labels, as<storage::Histogram>(value));
        case ValueKind::counts:
            return add_counts(out, labels, field, as<CountsByReason>(value));
        case ValueKind::text:
        case ValueKind::object:
        case ValueKind::list:
            return;
    }
}

void add_metrics(Exposition& out, const Structure& structure, LabelledObjects objects);

// The metrics of the objects that `field` has.
void add_part(Exposition& out, const LabelledObjects& objects, const Field& field) {
    const ValueType& type = *field.type;
    LabelledObjects parts;
    for (const Labelled& each : objects) {
        const void* const value = field.in(each.object);
        if (type.kind == ValueKind::object) {
            parts.push_back({value, each.labels});
            continue;
        }
        const std::size_t count = type.size(value);
        for (std::size_t i = 0; i != count; ++i)
            parts.push_back({type.item(value, i), each.labels});
    }
    add_metrics(out, type.structure(), std::move(parts));
}

void add_metrics(Exposition& out, const Structure& structure, LabelledObjects objects) {
    for (Labelled& each : objects) {
        each.labels = labels_of(structure, each.object, std::move(each.labels), FieldRole::label);
    }
    if (!structure.info_metric.name.empty()) {
        out.begin(structure.info_metric);
        for (const Labelled& each : objects) {
            out.add(labels_of(structure, each.object, each.labels, FieldRole::info));
        }
    }
    for (const Field& field : structure.fields) {
        if (!field.metric.name.empty()) {
            out.begin(field.metric);
            for (const Labelled& each : objects) {
                if (field.exposed_if != nullptr && !field.exposed_if(each.object)) continue;
                field.with_value(each.object, [&](const void* value) {
                    add_value(out, each.labels, field, value);
                });
            }
        }
        if (field.role == FieldRole::part) add_part(out, objects, field);
    }
}

}  // namespace

std::vector<MetricText> all_metrics() {
    std::vector<MetricText> out;
    list(out, Status::structure(), {});
    return out;
}

std::string metrics_text(const Status& status, bool openmetrics) {
    Exposition out(openmetrics);
    add_metrics(out, Status::structure(), {{&status, {}}});
    return std::move(out).text();
}

}  // namespace gpunbd::server
