// Describes the members of a status structure at run time: the name of each in the JSON of the API,
// and the metric or label that it is. Writers and readers of a status, the schemas of the API and
// the list of metrics in gpunbd(8) derive from these descriptions. Tables that are read at run time
// compile several times as fast as templates that visit each member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/counters/counts.hpp"

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

struct Structure;

// The C++ type of a value, which is that of the comment.
enum class ValueKind : std::uint8_t {
    text,       // std::string
    boolean,    // bool
    count32,    // std::uint32_t
    count,      // std::uint64_t
    integer,    // std::int64_t
    real,       // double
    counts,     // CountsByReason
    histogram,  // storage::Histogram
    object,     // the type that `structure` describes
    list,       // std::vector of objects
};

// How to use a value of which only the address is known. INVARIANT: the address is that of a value
// of this type.
struct ValueType {
    ValueKind kind;
    const Structure& (*structure)() = nullptr;  // of an object, and of the items of a list
    // Of a list.
    std::size_t (*size)(const void* list) = nullptr;
    const void* (*item)(const void* list, std::size_t index) = nullptr;
    void* (*append)(void* list) = nullptr;  // returns the new item
    // Of std::optional of a value of `kind`.
    const void* (*value)(const void* optional) = nullptr;  // null: unset
    void* (*emplace)(void* optional) = nullptr;            // returns the new value

    bool optional() const { return value != nullptr; }
};

struct Field {
    using Condition = bool (*)(const void* object);

    std::string_view name;  // in JSON; empty: it is only a metric
    const ValueType* type;
    std::size_t offset = 0;  // of the member in its object
    // Of a value that is calculated from the members; else null.
    std::uint64_t (*number)(const void* object) = nullptr;
    CountsByReason (*counts)(const void* object) = nullptr;

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

    bool calculated() const { return number != nullptr || counts != nullptr; }
    Field one_of(std::span<const std::string_view> values) const {
        Field out = *this;
        out.words = values;
        return out;
    }
    Field within(std::uint64_t smallest, std::uint64_t largest) const {
        Field out = *this;
        out.least = smallest;
        out.most = largest;
        return out;
    }

    // The member; not of a calculated value.
    const void* in(const void* object) const { return static_cast<const char*>(object) + offset; }
    void* in(void* object) const { return static_cast<char*>(object) + offset; }
    // Calls `use` with the address of the value, which is valid during the call.
    template <class Use>
    void with_value(const void* object, Use use) const {
        if (number != nullptr) {
            const std::uint64_t value = number(object);
            use(static_cast<const void*>(&value));
        } else if (counts != nullptr) {
            const CountsByReason value = counts(object);
            use(static_cast<const void*>(&value));
        } else {
            use(in(object));
        }
    }
};

// The name of a structure's schema in the API.
struct Schema {
    std::string_view name;
    std::string_view description = {};
};

struct Structure {
    Schema schema;
    std::vector<Field> fields;  // with those of the counts that the type inherits
    Metric info_metric = {};    // without a name: none
};

template <class Type>
concept Described = requires { Type::structure(); };

// The value at this address.
template <class Type>
const Type& as(const void* value) {
    return *static_cast<const Type*>(value);
}
template <class Type>
Type& as(void* value) {
    return *static_cast<Type*>(value);
}

}  // namespace gpunbd::server
