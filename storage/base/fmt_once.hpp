// CMakeLists.txt includes this before every C++ file that uses fmt. It declares fmt 9's formatting
// engine, which libfmt contains, as extern. Otherwise each file that logs would instantiate it
// again, which takes seconds of compile time and 100 KiB.
#pragma once

#include <fmt/core.h>

#if FMT_VERSION < 100000
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                   fmt::format_args, fmt::detail::locale_ref);
#endif
