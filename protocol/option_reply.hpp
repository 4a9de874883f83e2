// Replies to options ("Fixed newstyle negotiation"), appended to the output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "protocol/export_info.hpp"
#include "protocol/meta_context.hpp"

namespace gpunbd::protocol {

// Writes the replies to one option. `option` is the number as the client sent it, known or not.
class OptionReplies {
 public:
    OptionReplies(std::vector<std::byte>& out, std::uint32_t option) : out_(out), option_(option) {}

    void ack();
    // `message` never echoes the client's bytes, since a reply must not exceed the string limit
    // because of a long name.
    void error(OptionReply type, std::string_view message);
    void server(const ExportInfo& info);
    void info_export(const ExportInfo& info, Headers headers);
    void info_name(const ExportInfo& info);
    void info_description(const ExportInfo& info);
    void info_block_size(const ExportInfo& info);
    // `id`: 0 for LIST.
    void meta_context(std::uint32_t id, std::string_view name);

 private:
    void header(OptionReply type, std::size_t length);
    void info(InfoType type, std::size_t length);
    void text(std::string_view text);

    std::vector<std::byte>& out_;
    std::uint32_t option_;
};

}  // namespace gpunbd::protocol
