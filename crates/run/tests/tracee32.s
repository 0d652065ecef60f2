# A 32-bit program: asks for the end of its heap, unmaps a page that is not there, ends with 23.
.globl _start
_start:
    movl $45, %eax
    xorl %ebx, %ebx
    int $0x80
    movl $91, %eax
    movl $0x1000, %ebx
    movl $4096, %ecx
    int $0x80
    movl $1, %eax
    movl $23, %ebx
    int $0x80
