// Comes before every C++ file that uses fmt (CMakeLists.txt): fmt 9 would make its whole formatting
// engine anew in each file that logs, seconds of compiling and 100 KiB a time. libfmt has it
// already.
#pragma once

#include <fmt/core.h>

#if FMT_VERSION < 100000
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                   fmt::format_args, fmt::detail::locale_ref);
#endif
