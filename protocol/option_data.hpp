// The data of the options that carry any, decoded whole before anything is answered, so that a
// malformed option changes nothing ("Option types").
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "protocol/constants.hpp"
#include "protocol/meta_context.hpp"

namespace gpunbd::protocol {

// INFO and GO. Views point into the option's data.
struct InfoRequest {
    std::string_view export_name;
    bool name = false;
    bool description = false;
    bool block_size = false;
};

// LIST_META_CONTEXT and SET_META_CONTEXT, reduced to what the contexts that we have need.
struct MetaQuery {
    std::string_view export_name;
    bool any = false;           // at least one query was sent; else all are meant
    MetaContexts matched = {};  // by a query that is their name, or stands for several
    MetaContexts named = {};    // by a query that is their name
};

// Nothing where a length does not fit the data, bytes are left over, or a string is not one.
std::optional<InfoRequest> decode_info_request(std::span<const std::byte> data);
// `instance`: that of the export, or empty.
std::optional<MetaQuery> decode_meta_query(std::span<const std::byte> data,
                                           std::string_view instance);
std::optional<std::string_view> decode_export_name(std::span<const std::byte> data);

// For the log: the name that an option starts with, also where it or the rest is malformed.
std::optional<std::string_view> name_asked_for(OptionType option, std::span<const std::byte> data);

}  // namespace gpunbd::protocol
