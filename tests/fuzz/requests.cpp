// Requests through the gate, and the replies to them. Commands must be in range, aligned and
// permitted, and replies must contain what the encoder was given.
#include <algorithm>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "protocol/bytes.hpp"
#include "protocol/gate.hpp"
#include "protocol/reply_encoder.hpp"
#include "tests/fuzz/require.hpp"
#include "tests/fuzz/script.hpp"
#include "tests/protocol/wire.hpp"

namespace {

using namespace gpunbd::protocol;
using gpunbd::fuzz::require;
using gpunbd::fuzz::Script;

NegotiatedOptions negotiated_by(Script& script) {
    NegotiatedOptions negotiated;
    const std::uint32_t choices = script.byte();
    ExportInfo& info = negotiated.export_info;
    negotiated.headers = (choices & 1) == 0   ? Headers::simple
                         : (choices & 8) == 0 ? Headers::structured
                                              : Headers::extended;
    if ((choices & 3) == 3) negotiated.contexts = MetaContext::base_allocation;
    if ((choices & 0x13) == 0x13) negotiated.contexts.add(MetaContext::device);
    info.read_only = (choices & 4) != 0;
    info.minimum_block = 1U << (script.byte() % 13);
    info.size = std::uint64_t{script.word()} << (script.byte() % 48);
    info.size -= info.size % info.minimum_block;
    return negotiated;
}

bool permitted(const Command& command, const NegotiatedOptions& negotiated) {
    const ExportInfo& info = negotiated.export_info;
    switch (command.type) {
        case CommandType::write:
            return !info.read_only && command.length <= info.maximum_payload;
        case CommandType::trim:
        case CommandType::write_zeroes:
            return !info.read_only;
        case CommandType::read:
            return command.length <= info.maximum_payload;
        case CommandType::block_status:
            return !command.contexts.none() && command.length != 0;
        case CommandType::disc:
        case CommandType::flush:
            return command.offset == 0 && command.length == 0;
        case CommandType::cache:
            return true;
    }
    return false;
}

bool is_extended(const NegotiatedOptions& negotiated) {
    return negotiated.headers == Headers::extended;
}

// The header of a reply, after a check that it is one of those that were negotiated.
wire::ReplyHead head_of(const std::byte* from, const NegotiatedOptions& negotiated) {
    require(wire::reply_head_size(from) != 0, "the magic number of a reply");
    const wire::ReplyHead head = wire::parse_reply_head(from);
    require(head.headers == negotiated.headers || (head.simple() && !is_extended(negotiated)),
            "the format of a reply");
    return head;
}

// Checks a complete reply of `size` bytes against the expected `error`.
void check_end(const ReplyHeader& header, std::size_t size, const Command& command, Error error,
               const NegotiatedOptions& negotiated) {
    const wire::ReplyHead head = head_of(header.data(), negotiated);
    require(head.cookie == command.cookie, "the cookie of a reply");
    if (head.simple()) {
        require(size == simple_reply_size, "a simple reply has 16 bytes");
        require(head.error == error, "the error of a simple reply");
        return;
    }
    const std::size_t header_size = chunk_header_size_of(negotiated.headers);
    require(head.flags == chunk_flag_done, "the last chunk has DONE");
    require(size == header_size + head.length, "the length of a chunk");
    if (is_extended(negotiated)) {
        require(head.offset == command.offset, "the offset of the request");
    }
    require(head.is_error() == (error != Error::none), "an error has an error chunk");
    if (head.is_error()) {
        require(Error{load_be<std::uint32_t>(header.data() + header_size)} == error,
                "the error of an error chunk");
    }
}

void check_read(const ReplyEncoder& encoder, const Command& read,
                const NegotiatedOptions& negotiated) {
    ReplyHeader header{};
    const auto length = static_cast<std::uint32_t>(read.length);
    if (length == 0) return;
    if (negotiated.headers == Headers::simple) {
        check_end(header, encoder.whole(header, read), read, Error::none, negotiated);
        return;
    }
    const std::size_t header_size = chunk_header_size_of(negotiated.headers);
    const std::size_t data_header_size = header_size + wire::data_offset_size;
    if (!encoder.splits(read)) {
        require(encoder.whole(header, read) == data_header_size, "a whole READ is one data chunk");
    }
    for (const bool hole : {false, true}) {
        if (hole && !encoder.splits(read)) break;
        if (hole) {
            require(encoder.hole(header, read, read.offset, length, true) ==
                        header_size + wire::hole_size,
                    "a hole chunk has no data");
        } else {
            require(encoder.data(header, read, read.offset, length, true) == data_header_size,
                    "a data chunk begins with its offset");
        }
        const wire::ReplyHead head = head_of(header.data(), negotiated);
        require(head.cookie == read.cookie, "the cookie of a chunk");
        require(head.length == (hole ? wire::hole_size : wire::data_offset_size + length),
                "the payload length of a chunk");
        const std::byte* const payload = header.data() + header_size;
        require(load_be<std::uint64_t>(payload) == read.offset, "the offset of a chunk");
        if (!hole) continue;
        const auto content = wire::parse_content(head.type, {payload, wire::hole_size});
        require(content && content->length == length, "the length of a hole");
    }
}

void check_command(const Command& command, const NegotiatedOptions& negotiated) {
    const ExportInfo& info = negotiated.export_info;
    require(command.offset <= info.size && command.length <= info.size - command.offset,
            "a command is in range");
    require(command.offset % info.minimum_block == 0 && command.length % info.minimum_block == 0,
            "a command is aligned");
    require(permitted(command, negotiated), "a command is permitted");
    if (command.type == CommandType::disc) return;  // it has no reply
    const ReplyEncoder encoder(negotiated);
    ReplyHeader header{};
    check_end(header, encoder.success(header, command), command, Error::none, negotiated);
    const auto error = encoder.error(
        header,
        {.error = Error::eio, .cookie = command.cookie, .offset = command.offset, .text = "why"});
    check_end(header, error.header_length + error.text.size(), command, Error::eio, negotiated);
    if (command.type == CommandType::read) check_read(encoder, command, negotiated);
    if (command.type == CommandType::block_status) {
        std::vector<std::byte> out;
        const Extent extent{.length = command.length, .status = 3};
        const MetaContext context = *std::ranges::find_if(
            all_contexts, [&](MetaContext each) { return command.contexts.has(each); });
        encoder.block_status(out, command, context, {&extent, 1}, true);
        const wire::ReplyHead head = head_of(out.data(), negotiated);
        const auto payload =
            std::span<const std::byte>(out).subspan(chunk_header_size_of(negotiated.headers));
        require(payload.size() == head.length, "the length of a BLOCK_STATUS reply");
        const auto status = wire::parse_status(head.type, payload);
        require(status && status->extents == std::vector{extent},
                "a BLOCK_STATUS reply has one extent");
    }
}

// Decodes a request, and checks that encoding it again gives the same bytes.
std::optional<Request> decoded(std::span<const std::byte> wire, Headers headers) {
    const bool extended = headers == Headers::extended;
    const auto request = decode_request(wire, headers);
    require(request.has_value() == (load_be<std::uint32_t>(wire.data()) ==
                                    (extended ? extended_request_magic : request_magic)),
            "a request is decoded if its magic number is right");
    if (request) {
        std::vector<std::byte> again(wire.size());
        if (extended) {
            encode_extended_request(*request, std::span(again).first<extended_request_size>());
        } else {
            encode_request(*request, std::span(again).first<request_size>());
        }
        require(std::equal(again.begin(), again.end(), wire.begin()),
                "encoding restores the bytes");
    }
    return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Script script(data, size);
    const NegotiatedOptions negotiated = negotiated_by(script);
    while (!script.over()) {
        const std::size_t header_size = request_size_of(negotiated.headers);
        const auto wire = script.bytes(header_size);
        if (wire.size() < header_size) return 0;
        const auto request = decoded(wire, negotiated.headers);
        if (!request) continue;
        Validated validated = validate(*request, negotiated);
        if (const auto* payload = std::get_if<StatusPayload>(&validated)) {
            require(payload->length <= max_status_payload, "a status payload is bounded");
            const auto content = script.bytes(payload->length);
            if (content.size() < payload->length) return 0;
            validated = validate_status(*request, content, negotiated);
            require(!std::holds_alternative<StatusPayload>(validated),
                    "a request has at most one status payload");
        }
        if (const auto* command = std::get_if<Command>(&validated)) {
            require(command->cookie == request->cookie, "the cookie of a command");
            check_command(*command, negotiated);
        } else if (const auto* refusal = std::get_if<Refusal>(&validated)) {
            require(refusal->cookie == request->cookie, "the cookie of a refusal");
            require(refusal->error != Error::none, "a refusal has an error");
            require(refusal->discard <= std::uint64_t{2} * max_payload,
                    "the discarded payload is bounded");
        }
    }
    return 0;
}
