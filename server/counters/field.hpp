// Describes a member of a status structure in one place: its name in the JSON of the API, and the
// metric or label that it is. Writers and readers of a status, the schemas of the API and the list
// of metrics in gpunbd(8) derive from these descriptions.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace gpunbd::server {

enum class MetricType { counter, gauge, histogram, info };

struct Metric {
    std::string_view name = {};  // without _total and _info; ends in the unit, if that is bytes or
                                 // seconds. Empty: no metric
    MetricType type = MetricType::gauge;
    std::string_view help = {};  // also describes a value that is no metric
};

// What the member means to the metrics of its object.
enum class FieldRole {
    plain,  // only what `metric` says
    label,  // labels them, and those of the objects inside
    info,   // is a label of the object's info metric
    part,   // the metrics of the objects inside are exposed, too
};

template <class Owner, class Value>
struct Field {
    using Condition = bool (*)(const Owner&);

    std::string_view name;  // in JSON
    Value Owner::*member;
    FieldRole role = FieldRole::plain;
    std::string_view label = {};  // for FieldRole::label and info; of a map: the label of its keys
    Metric metric = {};
    // Samples that counters have before the first event, so that their rates are known.
    std::span<const std::string_view> expected_keys = {};
    std::span<const std::string_view> words = {};  // its possible values, if they are listed
    std::uint64_t least = 0;                       // of a number
    std::uint64_t most = 0;                        // of a number; 0: no limit
    Condition exposed_if = nullptr;                // else there is no sample; null: always
    Condition not_null_if = nullptr;               // else JSON has null; null: always

    constexpr Field one_of(std::span<const std::string_view> values) const {
        Field out = *this;
        out.words = values;
        return out;
    }
    constexpr Field within(std::uint64_t smallest, std::uint64_t largest) const {
        Field out = *this;
        out.least = smallest;
        out.most = largest;
        return out;
    }
    const Value& value_in(const Owner& object) const { return object.*member; }
};

// A value that is calculated from the others.
template <class Owner, class Value>
struct Calculated {
    std::string_view name;  // in JSON; empty: it is only a metric
    Value (*value_in)(const Owner&);
    std::string_view label = {};  // of a map: the label of its keys
    Metric metric = {};
    std::span<const std::string_view> words = {};
};

// The name of a structure's schema in the API.
struct Schema {
    std::string_view name;
    std::string_view description = {};
};

// Calls `visit` with each field of an object's type, and with those of the counts that it inherits.
template <class Object, class Visit>
constexpr void for_each_field(Visit visit) {
    std::apply([&](const auto&... field) { (visit(field), ...); }, Object::fields());
    if constexpr (requires { typename Object::Counts; })
        for_each_field<typename Object::Counts>(visit);
}

template <class Type>
concept Described = requires { Type::fields(); };

template <class Type>
struct IsVector : std::false_type {};
template <class Item>
struct IsVector<std::vector<Item>> : std::true_type {};

// --- the kinds of fields

template <class Owner, class Value>
constexpr Field<Owner, Value> field(std::string_view name, Value Owner::*member,
                                    std::string_view help = {}) {
    return {.name = name, .member = member, .metric = {.help = help}};
}
template <class Owner, class Value>
constexpr Field<Owner, Value> label(std::string_view name, Value Owner::*member,
                                    std::string_view label, std::string_view help = {}) {
    return {.name = name,
            .member = member,
            .role = FieldRole::label,
            .label = label,
            .metric = {.help = help}};
}
template <class Owner, class Value>
constexpr Field<Owner, Value> info(std::string_view name, Value Owner::*member,
                                   std::string_view label) {
    return {.name = name, .member = member, .role = FieldRole::info, .label = label};
}
template <class Owner, class Value>
constexpr Field<Owner, Value> part(std::string_view name, Value Owner::*member,
                                   std::string_view help = {}) {
    return {.name = name, .member = member, .role = FieldRole::part, .metric = {.help = help}};
}
template <class Owner, class Value>
constexpr Field<Owner, Value> gauge(std::string_view name, Value Owner::*member,
                                    std::string_view metric, std::string_view help,
                                    bool (*exposed_if)(const Owner&) = nullptr) {
    return {.name = name,
            .member = member,
            .metric = {metric, MetricType::gauge, help},
            .exposed_if = exposed_if};
}
template <class Owner, class Value>
constexpr Field<Owner, Value> counter(std::string_view name, Value Owner::*member,
                                      std::string_view metric, std::string_view help) {
    return {.name = name, .member = member, .metric = {metric, MetricType::counter, help}};
}
// A map: one sample for each key.
template <class Owner, class Value>
constexpr Field<Owner, Value> counters(std::string_view name, Value Owner::*member,
                                       std::string_view label, std::string_view metric,
                                       std::string_view help,
                                       std::span<const std::string_view> expected_keys = {}) {
    return {.name = name,
            .member = member,
            .label = label,
            .metric = {metric, MetricType::counter, help},
            .expected_keys = expected_keys};
}
template <class Owner, class Value>
constexpr Field<Owner, Value> histogram(std::string_view name, Value Owner::*member,
                                        std::string_view metric, std::string_view help) {
    return {.name = name, .member = member, .metric = {metric, MetricType::histogram, help}};
}
template <class Owner, class Value>
constexpr Field<Owner, Value> nullable(std::string_view name, Value Owner::*member,
                                       bool (*not_null_if)(const Owner&),
                                       std::string_view help = {}) {
    return {.name = name, .member = member, .metric = {.help = help}, .not_null_if = not_null_if};
}
template <class Owner, class Value>
constexpr Calculated<Owner, Value> calculated(std::string_view name, Value (*value)(const Owner&),
                                              std::string_view help = {}) {
    return {.name = name, .value_in = value, .metric = {.help = help}};
}
// A metric that JSON does not have; of a map: one sample for each key.
template <class Owner, class Value>
constexpr Calculated<Owner, Value> only_gauge(std::string_view metric, std::string_view help,
                                              Value (*value)(const Owner&),
                                              std::string_view label = {}) {
    return {
        .name = {}, .value_in = value, .label = label, .metric = {metric, MetricType::gauge, help}};
}

}  // namespace gpunbd::server
