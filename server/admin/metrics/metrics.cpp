#include "server/admin/metrics/metrics.hpp"

#include <algorithm>
#include <utility>

#include "server/admin/metrics/exposition.hpp"

namespace gpunbd::server {

namespace {

// An object with the labels of its metrics.
template <class Object>
struct Labelled {
    const Object* object;
    Labels labels;
};
template <class Object>
using LabelledObjects = std::vector<Labelled<Object>>;

std::string_view label_value(const std::string& text) { return text; }
std::string_view label_value(bool value) { return value ? "yes" : "no"; }

Labels with(Labels labels, std::string_view name, std::string_view value) {
    labels.push_back({name, value});
    return labels;
}

template <class Object>
Labels labels_of(const Object& object, Labels labels, FieldRole role) {
    for_each_field<Object>([&](const auto& field) {
        if constexpr (requires { label_value(object.*field.member); }) {
            if (field.role == role)
                labels.push_back({field.label, label_value(object.*field.member)});
        }
    });
    return labels;
}

template <class Object>
bool is_exposed(const Object& object, const auto& field) {
    if constexpr (requires { field.exposed_if; }) {
        return field.exposed_if == nullptr || field.exposed_if(object);
    } else {
        return true;
    }
}

template <class Object>
void add_sample(Exposition& out, const Labelled<Object>& of, const auto& field) {
    if (!is_exposed(*of.object, field)) return;
    const auto& value = field.value_in(*of.object);
    if constexpr (requires { value.has_value(); }) {
        if (value) out.add(of.labels, *value);
    } else if constexpr (requires { out.add(of.labels, value); }) {
        out.add(of.labels, value);
    } else if constexpr (std::is_same_v<decltype(value), const CountsByReason&>) {
        CountsByReason all;
        if constexpr (requires { field.expected_keys; }) {
            for (const std::string_view key : field.expected_keys) all.emplace(key, 0);
        }
        for (const auto& [key, count] : value) all[key] = count;
        for (const auto& [key, count] : all) out.add(with(of.labels, field.label, key), count);
    }
}

template <class Object>
void add_metrics(Exposition& out, LabelledObjects<Object> objects);

// The metrics of the objects that `field` has.
template <class Object>
void add_part(Exposition& out, const LabelledObjects<Object>& objects, const auto& field) {
    using Value = std::decay_t<decltype(std::declval<Object>().*field.member)>;
    if constexpr (Described<Value>) {
        LabelledObjects<Value> parts;
        for (const auto& each : objects)
            parts.push_back({&((*each.object).*field.member), each.labels});
        add_metrics(out, std::move(parts));
    } else if constexpr (IsVector<Value>::value) {
        LabelledObjects<typename Value::value_type> parts;
        for (const auto& each : objects) {
            for (const auto& part : (*each.object).*field.member)
                parts.push_back({&part, each.labels});
        }
        add_metrics(out, std::move(parts));
    }
}

template <class Object>
void add_metrics(Exposition& out, LabelledObjects<Object> objects) {
    for (auto& each : objects) {
        each.labels = labels_of(*each.object, std::move(each.labels), FieldRole::label);
    }
    if constexpr (requires { Object::info_metric; }) {
        out.begin(Object::info_metric);
        for (const auto& each : objects)
            out.add(labels_of(*each.object, each.labels, FieldRole::info));
    }
    for_each_field<Object>([&](const auto& field) {
        if (!field.metric.name.empty()) {
            out.begin(field.metric);
            for (const auto& each : objects) add_sample(out, each, field);
        }
        if constexpr (requires { field.role; }) {
            if (field.role == FieldRole::part) add_part(out, objects, field);
        }
    });
}

}  // namespace

std::string metrics_text(const Status& status, bool openmetrics) {
    Exposition out(openmetrics);
    add_metrics(out, LabelledObjects<Status>{{&status, {}}});
    return std::move(out).text();
}

}  // namespace gpunbd::server
